"use strict";
// Looks numbers up in the library's tables, interpolates, multiplies, and shows. The noise that ε
// takes always comes from a table.
const data = JSON.parse(document.getElementById("data").textContent);
const { axes } = data.grid;
const AXES = ["epsilon", "delta", "clients", "rounds", "entries", "rate"];
const TYPED = ["patients", "clients", "columns", "entries", "epsilon", "rounds"];
const $ = (id) => document.getElementById(id);
const radios = [...document.querySelectorAll("input[name=trust]")];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

// The answer

const isTyped = (s) => s.scheme === "records" || s.scheme === "models";
function times(s) { return s.is_once && !isTyped(s) ? 1 : s.rounds; }
function threshold(s) {
  if (s.scheme === "models") return Math.max(3, Math.floor(s.clients / 2) + 1);
  return isTyped(s) ? Math.max(3, Math.ceil(s.clients / 2)) : Math.ceil((9 * s.clients) / 10);
}

/** Bytes of keys and shares that a masked sum needs beside its payload. */
function protocol(s) { return data.grid.protocol[s.scheme]?.[axes.clients.indexOf(s.clients)] ?? 0; }

/** A table's value between its places: linear in logarithms. */
function between(places, values, at) {
  let i = 0;
  while (i < places.length - 2 && places[i + 1] < at) i += 1;
  const part = Math.log(at / places[i]) / Math.log(places[i + 1] / places[i]);
  return Math.exp(Math.log(values[i]) * (1 - part) + Math.log(values[i + 1]) * part);
}

/** The noise of one sum, in units of what a patient can add. */
function multiplier(epsilon, q, rounds) {
  const t = data.grid.multipliers, mu = between(t.epsilons, t.mu, epsilon);
  const many = q === 1 ? Math.sqrt(rounds) / mu : 1 / Math.sqrt(Math.log1p((mu / q) ** 2 / rounds));
  const table = t.ratios[t.samplings.indexOf(q)];
  return many * between(t.some_epsilons, table.map((row) => between(t.rounds, row, rounds)), epsilon);
}

/** Which typed number is out of range, or too much for this page. */
function refusal(s) {
  for (const name of TYPED) {
    const box = $(`n-${name}`), isRead = s.scheme === "models" ? name !== "entries" : name !== "columns";
    const isWhole = name === "epsilon" || Number.isInteger(s[name]);
    if (isRead && !(s[name] >= Number(box.min) && s[name] <= Number(box.max) && isWhole)) return "range";
  }
  if (s.scheme === "models") return s.rounds < 4 ? "messages" : null;
  const size = s.clients * s.entries * s.rounds * (1 + Math.exp(s.epsilon));
  return size > data.records.most ? "large" : null;
}

/** Training in rounds, as jopeq plan --records plans: the smallest sample that is nearly as good as all. */
function planRecords(s) {
  const whole = multiplier(s.epsilon, 1, s.rounds);
  const q = data.grid.multipliers.samplings.find((one) => one * s.patients >= 1 &&
    (one === 1 || multiplier(s.epsilon, one, s.rounds) / one <= Math.sqrt(data.records.dearer) * whole));
  const batch = q * s.patients, most = Math.min(s.patients, batch + 6 * Math.sqrt(batch));
  const moved = 1 + most * data.records.dependence; // by one patient, through the other rows of a sample
  const noise = (multiplier(s.epsilon, q, s.rounds) * moved) / batch;
  const error = (data.records.price * s.clients / (s.clients - 1) * s.entries * noise ** 2) / data.records.signal ** 2;
  const averaged = error / s.rounds, clear = data.learns[0];
  const needed = 1.02 * s.patients * Math.sqrt(averaged / clear);
  const enough = twoDigits(needed);
  return { error, averaged, sampling: q, enough: averaged <= clear ? Math.min(enough, s.patients) : enough };
}

/** A logistic regression, as Logistic.plan() plans: standard errors of a coefficient times its column's deviation. */
function planModel(s) {
  const noise = multiplier(s.epsilon, 1, s.rounds) * Math.sqrt((data.records.price * s.clients) / (s.clients - 1));
  const size = s.columns + 1, length = Math.sqrt(size), { burned, wide, balance } = data.models;
  const plain = 2 / Math.sqrt(s.patients), spread = (noise * length) / Math.sqrt(s.rounds - burned);
  const error = Math.hypot(plain, (8 * spread) / s.patients);
  const edge = (16 * spread * Math.sqrt(2 * size) * length) / balance;
  const narrow = (4 * spread) ** 2 / (wide ** 2 - 1);
  const verdict = s.patients < edge ? "noise" : error > wide * plain ? "wide" : "enough";
  return { standard_error: error, without_privacy: plain, verdict, enough: twoDigits(Math.max(edge, narrow)) };
}

function twoDigits(n) {
  const unit = 10 ** Math.max(0, String(Math.floor(n)).length - 2);
  return Math.ceil(n / unit) * unit;
}

/** The cell of a flat table, whose last axis changes first. */
function cell(table, s) {
  const at = { ...s, rounds: times(s) };
  const place = table.by.reduce((i, name) => i * axes[name].length + axes[name].indexOf(at[name]), 0);
  return { error: table.error[place], bits: table.bits[place] };
}

function answer(s) {
  const found = { bias: 0, delta: 0 };
  let lasting = 0; // the part of the error that no number of rounds lowers
  let bits, sent;
  if (data.per_entry.includes(s.scheme)) {
    const table = data.grid.entry[s.scheme];
    const place = axes.epsilon.indexOf(s.epsilon) * axes.rate.length + axes.rate.indexOf(s.rate);
    const client = axes.clients.indexOf(s.clients);
    bits = table.bits[place] * s.entries;
    sent = table.bytes[place][axes.entries.indexOf(s.entries)];
    lasting = table.lasting[place][client];
    const entry = table.epsilon[place] ?? Infinity;
    Object.assign(found, {
      error: table.error[place][client], bias: table.bias[place], spread: table.spread[place][client],
      epsilon_entry: entry, epsilon_update: entry * s.entries,
      epsilon_person: entry * s.entries * times(s),
    });
  } else if (isTyped(s)) {
    const refused = refusal(s);
    if (refused) return { refused };
    Object.assign(found, s.scheme === "models" ? planModel(s) : planRecords(s));
    const size = s.columns + 1, numbers = s.scheme === "models" ? (size * (size + 3)) / 2 : s.entries;
    bits = data.records.bits * numbers;
    sent = Math.ceil(bits / 8) + data.records.protocol;
    for (const name of ["epsilon_entry", "epsilon_update", "epsilon_person"]) found[name] = s.epsilon;
    found.delta = 1e-5;
    return { ...found, bits_per_entry: data.records.bits, bytes_a_round: sent, bytes_in_all: sent * s.clients * s.rounds,
      float32_in_all: 4 * numbers * s.clients * s.rounds };
  } else {
    const looked = cell(data.grid[s.scheme], s);
    if (typeof looked.error === "string") return { refused: looked.error };
    bits = looked.bits;
    sent = Math.ceil(bits / 8) + protocol(s);
    if (s.scheme === "sphere") {
      const each = s.epsilon / times(s);
      Object.assign(found, { error: looked.error / s.clients, epsilon_entry: each, epsilon_update: each });
    } else {
      Object.assign(found, { error: looked.error, epsilon_entry: s.epsilon, epsilon_update: s.epsilon, delta: s.delta });
    }
    found.epsilon_person = s.epsilon;
  }
  const turns = s.clients * s.rounds;
  return {
    ...found, bits_per_entry: bits / s.entries, bytes_a_round: sent, bytes_in_all: sent * turns,
    float32_in_all: 4 * s.entries * turns, averaged: lasting + (found.error - lasting) / s.rounds,
  };
}

// Words

const plain = (n) => n.toLocaleString("en-US");
const threeDigits = (n) => n.toLocaleString("en-US", { maximumSignificantDigits: 3 });
/** Three digits, rounded up: an ε is never shown smaller than it is. */
function epsilonText(e) {
  if (!Number.isFinite(e)) return "no bound";
  const unit = 10 ** (Math.floor(Math.log10(e)) - 2);
  const up = Math.ceil((e / unit) * (1 - 1e-9)) * unit;
  return up >= 1e9 ? `${threeDigits(up / 1e9)} billion` : threeDigits(up);
}
const smallText = (n) => (n < 1e-6 ? "below 0.000001" : threeDigits(n));
const deltaText = (d) => `1e-${Math.round(-Math.log10(d))}`;
function bytesText(n) {
  for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (n >= unit) return `${threeDigits(n / unit)} ${name}`;
  }
  return `${plain(n)} ${n === 1 ? "byte" : "bytes"}`;
}
const bitsText = (n) => (n === 1 ? "1 bit" : `${smallText(n)} bits`);
const countText = (s) => (s.scheme === "models" ? `${plain(s.rounds)} messages` : roundsText(s.rounds));
const roundsText = (n) => (n === 1 ? "1 round" : `${plain(n)} rounds`);

function privacyWords(s, a) {
  const promise = a.epsilon_person, who = isTyped(s) ? "patient" : "client";
  const strength = data.tiers.find(([most]) => promise <= most * (1 + 1e-9))?.[1];
  const level = promise <= data.tiers[0][0] ? "good" : strength ? "middle" : "bad";
  const verdict = strength ? `${strength[0].toUpperCase()}${strength.slice(1)}, for a ${who}.` : `No promise for a ${who}.`;
  const person = epsilonText(promise), update = epsilonText(a.epsilon_update);
  const all = times(s) === 1 ? "the one update that the client ever sends" : `all ${plain(times(s))} updates that the client sends`;
  const what = isTyped(s) ? `everything in ${countText(s)}` : all;
  const how = promise <= 30 ? `: seeing ${what} makes nothing about the ${who} more than ${epsilonText(Math.exp(promise))} times likelier` : "";
  if (isTyped(s)) {
    return [level, verdict,
      `ε = ${person} for every patient${how}, except with a chance of δ = 1e-5. Patients trust only their own hospital. This holds against the server together with one other hospital, as long as only totals of at least ${plain(threshold(s))} hospitals are opened.`];
  }
  if (s.scheme === "sphere") {
    return [level, verdict,
      `ε = ${person} for a client, such as a person${how}. ${times(s) === 1 ? "An update and an entry have no more." : `One update has ε = ${update}, an entry no more.`} This holds against a server that knows everything else.`];
  }
  if (s.scheme === "clients") {
    return [level, verdict,
      `ε = ${person} for a client${how}, except with a chance of δ = ${deltaText(s.delta)}. Updates and entries have no more. This holds as long as only sums of at least ${plain(threshold(s))} clients are opened, one of which may tell its share.`];
  }
  const entry = epsilonText(a.epsilon_entry);
  if (!Number.isFinite(a.epsilon_entry)) {
    return ["bad", "No proof, not even for an entry.",
      `jopeq adds no noise at ε = ${s.epsilon} and ${bitsText(s.rate)} an entry: the server knows the dither, and nothing is proven for an entry, an update or a client.`];
  }
  const asked = a.epsilon_entry > 1.001 * s.epsilon ? ` (asked for: ${s.epsilon})` : "";
  return [level, "Entries are protected, people are not.",
    `ε = ${entry} for each entry${asked}, which adds up to ${update} for an update and ${person} for a client in ${roundsText(times(s))}. An informed attacker recovers images behind such numbers: see below.`];
}

function learningWords(s, a) {
  const enough = !isTyped(s) || a.enough === s.patients ? "" : a.enough < s.patients ? `${plain(s.patients)} patients are enough; so are ${plain(a.enough)}.` : `${plain(a.enough)} patients would be enough.`;
  if (s.scheme === "models") {
    const errors = `Expected standard error ${threeDigits(a.standard_error)} of a coefficient times its column's standard deviation, against ${threeDigits(a.without_privacy)} without privacy. ${enough}`;
    const more = " Or take fewer columns, or a larger ε.";
    if (a.verdict === "noise") return ["bad", "Noise: nothing is told.", errors + more];
    if (a.verdict === "wide") return ["middle", `Intervals are ${threeDigits(a.standard_error / a.without_privacy)} times as wide.`, errors + more];
    return ["good", "Enough patients.", errors];
  }
  const [clear, noisy, drowned] = data.learns, share = `Squared error ÷ signal is ${smallText(a.error)} in a round and ${smallText(a.averaged)} over ${roundsText(s.rounds)}.`;
  const bias = Math.abs(a.bias) > 0.05 ? ` Large entries are pulled in by ${threeDigits(Math.abs(a.bias))} of their range; neither clients nor rounds average that out.` : "";
  const remedy = ` Take more ${isTyped(s) ? "patients" : "clients"}, a smaller model or a larger ε.${isTyped(s) ? ` ${enough}` : ""}`;
  if (a.averaged > drowned) return ["bad", "Nothing reliable is learnt.", share + remedy + bias];
  if (a.averaged > noisy) return ["bad", "It learns, and loses much accuracy.", share + remedy + bias];
  const told = isTyped(s) ? ` ${enough}` : "";
  if (a.averaged > clear) return ["middle", "It learns, and loses some accuracy.", share + bias + told];
  return [bias ? "middle" : "good", "It learns.", share + bias + told];
}

function trafficWords(s, a) {
  const times_ = a.float32_in_all / a.bytes_in_all;
  const ratio = times_ >= 1 ? `${threeDigits(times_)} times less than float32.` : `${threeDigits(1 / times_)} times more than float32.`;
  if (isTyped(s)) {
    const each = s.scheme === "models" ? "message" : "round";
    return [times_ < 1 && a.bytes_a_round > 1e6 ? "middle" : "good", `About ${bytesText(a.bytes_a_round)} per ${each}.`,
      `That is what each hospital sends, ${bytesText(a.bytes_in_all)} from all in ${countText(s)}, at ${data.records.bits} bits per number. jopeq plan gives the exact bits.`];
  }
  const keys = protocol(s) ? ` Of each, ${bytesText(protocol(s))} are keys and shares of the secure sum.` : "";
  return [times_ >= 4 ? "good" : times_ >= 1 ? "middle" : "bad", ratio,
    `${bytesText(a.bytes_a_round)} from each client in a round, ${bytesText(a.bytes_in_all)} from all in all rounds (float32: ${bytesText(a.float32_in_all)}).${keys} ${bitsText(a.bits_per_entry)} per entry.`];
}

function lines(s, a) {
  const values = {
    scheme: s.scheme, epsilon: s.epsilon, part: times(s) === 1 ? s.epsilon : `${s.epsilon} / ${times(s)}`, each: Math.floor((s.epsilon / times(s)) * 1e6) / 1e6,
    delta: deltaText(s.delta), clients: s.clients, threshold: threshold(s), times: times(s),
    entries: s.entries, rate: s.rate, spread: a.spread ?? "",
    patients: s.patients, sampling: a.sampling ?? "", columns: s.columns, models_threshold: threshold(s),
    more: s.entries > data.most_entries ? `, max_entries=${s.entries}` : "",
  };
  const texts = data.lines[data.per_entry.includes(s.scheme) ? "entry" : s.scheme];
  return Object.fromEntries(Object.entries(texts).map(([kind, text]) =>
    [kind, text.replace(/\{\{(\w+)\}\}|\{(\w+)\}/g, (_, kept, name) => (kept ? `{${kept}}` : values[name]))]));
}

// The setting

function setting() {
  const trust = radios.find((one) => one.checked).value;
  const s = { ...data.default, scheme: trust === "entry" ? $("scheme").value : trust, is_once: $("is_once").checked };
  if (isTyped(s)) {
    for (const name of TYPED) s[name] = $(`n-${name}`).valueAsNumber;
    s.is_once = false;
  } else {
    for (const name of AXES) s[name] = axes[name][Number($(name).value)];
  }
  return s;
}

function put(s) {
  const trust = data.per_entry.includes(s.scheme) ? "entry" : s.scheme;
  radios.forEach((one) => { one.checked = one.value === trust; });
  if (trust === "entry") $("scheme").value = s.scheme;
  $("is_once").checked = s.is_once;
  for (const name of isTyped(s) ? TYPED : []) $(`n-${name}`).value = s[name];
  for (const name of isTyped(s) ? [] : AXES) $(name).value = axes[name].indexOf(s[name]);
  show();
}

// Showing

const shown = { epsilon: String, delta: deltaText, clients: plain, rounds: plain, entries: plain, rate: String };
let last = null;

function show() {
  const s = setting(), isEntry = data.per_entry.includes(s.scheme);
  const hasPatients = isTyped(s);
  $("typed").hidden = !hasPatients;
  $("sliders").hidden = hasPatients;
  $("has-columns").hidden = s.scheme !== "models";
  $("has-entries").hidden = s.scheme !== "records";
  $("learn-part").hidden = s.scheme === "models";
  $("rounds-name").textContent = s.scheme === "models" ? "Messages" : "Rounds";
  for (const name of hasPatients ? [] : AXES) {
    const text = shown[name](s[name]);
    document.querySelector(`output[for=${name}]`).textContent = text;
    $(name).setAttribute("aria-valuetext", text);
  }
  $("which").hidden = !isEntry;
  switchOff("delta", s.scheme !== "clients", "only sums need it");
  switchOff("rate", !isEntry, "the scheme chooses them");
  $("epsilon-unit").textContent = isEntry ? "for each entry" : "for a client, in all";
  $("once-unit").textContent = s.is_once ? `${plain(s.clients * s.rounds)} clients in all` : "else each takes part in all rounds";
  const a = answer(s);
  last = { setting: s, answer: a };
  if (a.refused) {
    const why = data.reasons[a.refused].replace(/\{(\w+)\}/g, (_, name) => name === "what" ? ranges(s) : plain({ ...s, times: times(s) }[name]));
    card("privacy", ["bad", "The library refuses this setting.", why]);
    for (const id of ["learning", "traffic"]) card(id, ["bad", "–", "No plan, no numbers."]);
  } else {
    card("privacy", privacyWords(s, a));
    card("learning", learningWords(s, a));
    card("traffic", trafficWords(s, a));
  }
  for (const [kind, text] of Object.entries(a.refused ? { python: "", cli: "", flower: "" } : lines(s, a))) {
    $(kind).textContent = text;
  }
  showAttack(s, a);
  schedule();
}

/** What the typed boxes take. */
function ranges(s) {
  const boxes = TYPED.filter((name) => !$(`n-${name}`).closest("label").hidden).map((name) => $(`n-${name}`));
  const wrong = boxes.filter((box) => !box.checkValidity());
  return wrong.map((box) => `${box.closest("label").firstChild.textContent.trim() || $("rounds-name").textContent}: ${plain(Number(box.min))} to ${plain(Number(box.max))}`).join("; ");
}

function switchOff(name, isOff, why) {
  $(name).disabled = isOff;
  $(name).closest(".slider").classList.toggle("off", isOff);
  $(`${name}-unit`).textContent = isOff ? why : "";
  if (isOff) document.querySelector(`output[for=${name}]`).textContent = "–";
}

function card(id, [level, verdict, text]) {
  const box = $(id);
  box.dataset.level = level;
  box.querySelector(".verdict").textContent = verdict;
  box.querySelector(".text").textContent = text;
  const short = $("bar").children[["privacy", "learning", "traffic"].indexOf(id)];  // on a phone
  short.dataset.level = level;
  short.textContent = verdict;
}

function showAttack(s, a) {
  const { measured, nearest, strips } = data.pictures;
  const known = nearest[s.scheme];
  if (a.refused || !known) {
    $("attack-text").textContent = a.refused ? "" :
      isTyped(s) ? `The server and the other hospitals see one total of ${plain(s.clients)} hospitals, with the noise of ε = ${s.epsilon} for a patient in it.` :
      `No attack on secure sums was measured. The server sees one sum of at least ${plain(threshold(s))} updates, with the noise of ε = ${s.epsilon} in it, and no update of anybody.`;
    $("strips").replaceChildren();
    return;
  }
  const row = axes.epsilon.indexOf(s.epsilon);
  const one = measured[known[s.scheme === "sphere" ? row * axes.rounds.length + axes.rounds.indexOf(times(s)) : row]];
  const unit = one.scheme === "sphere" ? `ε = ${one.epsilon} for the whole update` : `ε = ${one.epsilon} per entry, 8 bits`;
  const [got, of] = one.recovered, [most, , epoch] = one.worst;
  const later = most > got ? ` (and ${Math.round((100 * most) / of)}% after ${epoch} epochs of training)` : "";
  const spoken = `An attacker who knows scheme, dither and scale recovered ${got} of ${of} images${later}`;
  $("attack-text").textContent = `Nearest measured setting: ${one.scheme}, ${unit}. ${spoken}, from the gradient of a single CIFAR-10 image each, on LeNet with 15,826 parameters. An attack that fails proves nothing; ε does.`;
  $("strips").replaceChildren(
    strip(strips[one.source], "The images", "four original images"),
    strip(strips[`${one.source} raw`], "Recovered without protection", "the four images, recovered from unprotected updates"),
    strip(strips[one.strip], `Recovered from ${one.scheme}, ${unit}`, `what was recovered from ${one.scheme} at ${unit}`),
  );
}

function strip(source, caption, alt) {
  const figure = document.createElement("figure"), image = document.createElement("img");
  image.src = source;
  image.alt = alt;
  image.width = 512;
  image.height = 128;
  const text = document.createElement("figcaption");
  text.textContent = caption;
  figure.append(image, text);
  return figure;
}

// Charts

const views = {};
const look = (name) => { const [light, night, shape] = data.looks[name === "models" ? "records" : name]; return { colour: dark.matches ? night : light, shape }; };
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function build() {
  const ink = style("--ink"), soft = style("--soft"), line = style("--line"), font = "system-ui, sans-serif";
  const config = { axis: { labelColor: soft, titleColor: soft, gridColor: line, labelFont: font, titleFont: font, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400 }, text: { font, fontSize: 12 } };
  for (const [name, id] of [["learn", "learn"], ["bytes", "bytes"], ["epsilon", "epsilon-chart"]]) {
    views[name]?.finalize();
    const view = new vega.View(vega.parse(data.charts[name], config), { renderer: "svg", container: $(id), hover: false });
    view.signal("ink", ink).signal("danger", style("--bad"));
    views[name] = view;
  }
  draw();
}

let waiting = 0;
function schedule() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(draw);
}

function draw() {
  if (!last || !views.learn) return;
  const { setting: s, answer: a } = last;
  drawLearn(s, a);
  drawEpsilon(a);
  drawBytes(s);
}

function fill(view, name, values) { view.data(name, values); }

function drawLearn(s, a) {
  if (s.scheme === "models") return;
  const rows = [], labels = [];
  const perEntry = data.per_entry.includes(s.scheme) ? s.scheme : "response";
  const axis = isTyped(s) ? "patients" : "clients"; // both go from tens to a million
  const here_ = s[axis];
  for (const scheme of isTyped(s) ? ["records"] : ["sphere", "clients", perEntry]) {
    const here = axes.clients.map((clients) => ({ clients, ...answer({ ...s, scheme, [axis]: clients }) })).filter((one) => !one.refused);
    const opacity = scheme === s.scheme ? 1 : 0.8;
    for (const { clients, averaged: error } of here) {
      rows.push({ scheme, clients, error, opacity, ...look(scheme), tip: `${scheme}, ${plain(clients)} ${axis}: ${smallText(error)}` });
    }
    if (here.length) {
      const at = here[Math.min(1, here.length - 1)];
      const unit = data.per_entry.includes(scheme) ? " (ε for an entry)" : isTyped({ scheme }) ? " (ε for a patient)" : "";
      labels.push({ scheme: scheme + unit, clients: at.clients, error: at.averaged, ...look(scheme) });
    }
  }
  const [, noisy, drowned] = data.learns;
  const errors = [...rows.map((row) => row.error), drowned];
  const low = 10 ** Math.max(-8, Math.floor(Math.log10(Math.min(...errors)))), high = 10 ** Math.ceil(Math.log10(Math.max(...errors) * 3));
  const inside = (value) => Math.min(high, Math.max(low, value));
  const view = views.learn;
  view.signal("low", low).signal("high", high);
  fill(view, "bands", [
    { low: inside(noisy), high: inside(drowned), opacity: 0.1 },
    { low: inside(drowned), high, opacity: 0.24 },
  ]);
  fill(view, "notes", [{ clients: 1e6, error: high, text: "nothing reliable is learnt" }]);
  fill(view, "lines", rows);
  fill(view, "labels", labels);
  fill(view, "here", a.refused ? [] : [{ clients: here_, error: a.averaged, ...look(s.scheme) }]);
  view.resize().runAsync();
  $("learn").setAttribute("aria-label", a.refused ? "no numbers at this setting" :
    `Chart of error over signal against ${axis}. At your setting of ${plain(here_)} ${axis} it is ${smallText(a.averaged)}; above ${drowned} nothing reliable is learnt.`);
}

function drawEpsilon(a) {
  const units = isTyped(last.setting) ? [["a patient", a.epsilon_person]] : [["an entry", a.epsilon_entry], ["an update", a.epsilon_update], ["a client", a.epsilon_person]];
  const rows = a.refused ? [] : units.map(
    ([row, epsilon]) => ({ row, start: 0.001, epsilon: Math.min(epsilon, 1e11), text: epsilonText(epsilon), ...look(last.setting.scheme) }));
  const strong = data.tiers[0][0], weak = data.tiers.at(-1)[0], view = views.epsilon;
  fill(view, "bands", [{ low: strong, high: weak, opacity: 0.1 }, { low: weak, high: 1e11, opacity: 0.24 }]);
  fill(view, "rows", rows);
  view.resize().runAsync();
  $("epsilon-chart").setAttribute("aria-label", rows.map(({ row, text }) => `ε of ${row}: ${text}`).join("; "));
}

function drawBytes(s) {
  const perEntry = data.per_entry.includes(s.scheme) ? s.scheme : "response";
  const size = s.columns + 1, float32 = 4 * (s.scheme === "models" ? (size * (size + 3)) / 2 : s.entries);
  const rows = [{ row: "float32", start: 1, bytes: float32, text: bytesText(float32), ...look("none") }];
  for (const scheme of isTyped(s) ? [s.scheme] : ["sphere", "clients", perEntry]) {
    const one = answer({ ...s, scheme });
    if (!one.refused) rows.push({ row: scheme === s.scheme ? `▸ ${scheme}` : scheme, start: 1, bytes: one.bytes_a_round, text: bytesText(one.bytes_a_round), ...look(scheme) });
  }
  fill(views.bytes, "rows", rows);
  views.bytes.resize().runAsync();
  $("bytes-hint").textContent = isTyped(s) ? "Up, from one hospital in one round or message. The way down, the model itself, is not counted." : `Up, in one round. sphere sends the number of a codeword, in a round whose terms were agreed once. ${perEntry} is shown at ${bitsText(s.rate)} per entry. The way down, the model itself, is not counted.`;
  $("bytes").setAttribute("aria-label", rows.map(({ row, text }) => `${row}: ${text}`).join("; "));
}

// Start

for (const name of AXES) {
  Object.assign($(name), { min: 0, max: axes[name].length - 1, step: 1 });
  $(name).value = axes[name].indexOf(data.slider[name]);
}
for (const name of TYPED) $(`n-${name}`).value = data.default[name];
$("controls").addEventListener("input", () => { show(); remember(); });
$("controls").addEventListener("submit", (event) => event.preventDefault());
dark.addEventListener("change", build);
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = $(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren($(button.dataset.copy));
      $("copied").textContent = "Selected: press Ctrl+C or ⌘C to copy.";
    }
  });
}

/** The setting in the address, so that it can be kept and shared. */
function remember() {
  const s = setting();
  const kept = new URLSearchParams(Object.entries(s).map(([name, value]) => [name, String(value)]));
  history.replaceState(null, "", `#${kept}`);
}
function remembered() {
  const s = { ...data.default };
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    if (name === "is_once") s.is_once = text === "true";
    else if (name === "scheme" && (text === "models" || (Object.hasOwn(data.looks, text) && text !== "none"))) s.scheme = text;
    else if (Object.hasOwn(s, name) && Number.isFinite(Number(text))) s[name] = Number(text);
  }
  for (const name of isTyped(s) ? [] : AXES) if (!axes[name].includes(s[name])) s[name] = data.slider[name];
  return s;
}
$("version").textContent = `jopeq ${data.version}. ε against the server, who knows payload, dither, scale and scheme. Pure ε add up; jopeq plan shows what a δ saves.`;
put(remembered());
build();
window.explorer = { put, answer, state: () => last, lines: () => Object.fromEntries(["python", "cli", "flower"].map((kind) => [kind, $(kind).textContent])) };
