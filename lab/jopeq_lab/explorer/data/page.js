"use strict";
// Looks numbers up in the library's tables, multiplies, and shows. No formula of privacy lives here.
const data = JSON.parse(document.getElementById("data").textContent);
const { axes } = data.grid;
const AXES = ["epsilon", "delta", "clients", "rounds", "entries", "rate", "patients"];
const $ = (id) => document.getElementById(id);
const radios = [...document.querySelectorAll("input[name=trust]")];
const dark = window.matchMedia("(prefers-color-scheme: dark)");

// The answer

const isRecords = (s) => s.scheme === "records";
function times(s) { return s.is_once && !isRecords(s) ? 1 : s.rounds; }
function threshold(s) { return isRecords(s) ? Math.max(3, Math.ceil(s.clients / 2)) : Math.ceil((9 * s.clients) / 10); }

/** Bytes of keys and shares that a masked sum needs beside its payload. */
function protocol(s) { return data.grid.protocol[s.scheme]?.[axes.clients.indexOf(s.clients)] ?? 0; }

/** The stops of an axis: tables of patients have the first ones. */
function stops(name, scheme) { return (isRecords({ scheme }) && data.records.stops[name]) || axes[name]; }

/** The cell of a flat table, whose last axis changes first. */
function cell(table, s) {
  const at = { ...s, rounds: times(s) };
  const place = table.by.reduce((i, name) => i * stops(name, s.scheme).length + axes[name].indexOf(at[name]), 0);
  return { error: table.error[place], bits: table.bits[place], sampling: table.sampling?.[place] };
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
  } else if (AXES.some((name) => !stops(name, s.scheme).includes(s[name]))) {
    return { refused: "beyond" };
  } else {
    const looked = cell(data.grid[s.scheme], s);
    if (typeof looked.error === "string") return { refused: looked.error };
    bits = looked.bits;
    sent = Math.ceil(bits / 8) + protocol(s);
    if (isRecords(s)) {
      Object.assign(found, { error: looked.error / data.records.signal ** 2, sampling: looked.sampling, epsilon_entry: s.epsilon, epsilon_update: s.epsilon, delta: 1e-5 });
    } else if (s.scheme === "sphere") {
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
const roundsText = (n) => (n === 1 ? "1 round" : `${plain(n)} rounds`);

function privacyWords(s, a) {
  const promise = a.epsilon_person, who = isRecords(s) ? "patient" : "client";
  const strength = data.tiers.find(([most]) => promise <= most * (1 + 1e-9))?.[1];
  const level = promise <= data.tiers[0][0] ? "good" : strength ? "middle" : "bad";
  const verdict = strength ? `${strength[0].toUpperCase()}${strength.slice(1)}, for a ${who}.` : `No promise for a ${who}.`;
  const person = epsilonText(promise), update = epsilonText(a.epsilon_update);
  const all = times(s) === 1 ? "the one update that the client ever sends" : `all ${plain(times(s))} updates that the client sends`;
  const what = isRecords(s) ? `everything in ${roundsText(s.rounds)}` : all;
  const how = promise <= 30 ? `: seeing ${what} makes nothing about the ${who} more than ${epsilonText(Math.exp(promise))} times likelier` : "";
  if (isRecords(s)) {
    return [level, verdict,
      `ε = ${person} for every patient${how}, except with a chance of δ = 1e-5. The patient trusts the own hospital. This holds against the server together with one other hospital, as long as only totals of at least ${plain(threshold(s))} hospitals are opened.`];
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
  const [clear, noisy, drowned] = data.learns, share = `Squared error ÷ signal is ${smallText(a.error)} in a round and ${smallText(a.averaged)} over ${roundsText(s.rounds)}.`;
  const bias = Math.abs(a.bias) > 0.05 ? ` Large entries are pulled in by ${threeDigits(Math.abs(a.bias))} of their range; neither clients nor rounds average that out.` : "";
  const remedy = ` Take more ${isRecords(s) ? "patients" : "clients"}, a smaller model or a larger ε.`;
  if (a.averaged > drowned) return ["bad", "Nothing reliable is learnt.", share + remedy + bias];
  if (a.averaged > noisy) return ["bad", "It learns, and loses much accuracy.", share + remedy + bias];
  if (a.averaged > clear) return ["middle", "It learns, and loses some accuracy.", share + bias];
  return [bias ? "middle" : "good", "It learns.", share + bias];
}

function trafficWords(s, a) {
  const times_ = a.float32_in_all / a.bytes_in_all;
  const ratio = times_ >= 1 ? `${threeDigits(times_)} times less than float32.` : `${threeDigits(1 / times_)} times more than float32.`;
  const keys = protocol(s) ? ` Of each, ${bytesText(protocol(s))} are keys and shares of the secure sum.` : "";
  return [times_ >= 4 ? "good" : times_ >= 1 ? "middle" : "bad", ratio,
    `${bytesText(a.bytes_a_round)} from each ${isRecords(s) ? "hospital" : "client"} in a round, ${bytesText(a.bytes_in_all)} from all in all rounds (float32: ${bytesText(a.float32_in_all)}).${keys} ${bitsText(a.bits_per_entry)} an entry.`];
}

function lines(s, a) {
  const values = {
    scheme: s.scheme, epsilon: s.epsilon, part: times(s) === 1 ? s.epsilon : `${s.epsilon} / ${times(s)}`, each: Math.floor((s.epsilon / times(s)) * 1e6) / 1e6,
    delta: deltaText(s.delta), clients: s.clients, threshold: threshold(s), times: times(s),
    entries: s.entries, rate: s.rate, spread: a.spread ?? "",
    patients: s.patients, sampling: a.sampling ?? "",
    more: s.entries > data.most_entries ? `, max_entries=${s.entries}` : "",
  };
  const texts = data.lines[data.per_entry.includes(s.scheme) ? "entry" : s.scheme];
  return Object.fromEntries(Object.entries(texts).map(([kind, text]) =>
    [kind, text.replace(/\{(\w+)\}/g, (_, name) => values[name])]));
}

// The setting

/** Sliders keep their values within their stops. */
function limit(trust) { for (const name of AXES) $(name).max = stops(name, trust).length - 1; }

function setting() {
  const trust = radios.find((one) => one.checked).value;
  limit(trust);
  const s = { scheme: trust === "entry" ? $("scheme").value : trust, is_once: $("is_once").checked };
  for (const name of AXES) s[name] = axes[name][Number($(name).value)];
  return s;
}

function put(s) {
  const trust = data.per_entry.includes(s.scheme) ? "entry" : s.scheme;
  radios.forEach((one) => { one.checked = one.value === trust; });
  limit(trust);
  if (trust === "entry") $("scheme").value = s.scheme;
  $("is_once").checked = s.is_once;
  for (const name of AXES) $(name).value = axes[name].indexOf(s[name]);
  show();
}

// Showing

const shown = { epsilon: String, delta: deltaText, clients: plain, rounds: plain, entries: plain, rate: String, patients: plain };
let last = null;

function show() {
  const s = setting(), isEntry = data.per_entry.includes(s.scheme);
  for (const name of AXES) {
    const text = shown[name](s[name]);
    document.querySelector(`output[for=${name}]`).textContent = text;
    $(name).setAttribute("aria-valuetext", text);
  }
  $("which").hidden = !isEntry;
  const hasPatients = isRecords(s);
  switchOff("delta", s.scheme !== "clients", hasPatients ? "1e-5 for a patient" : "only sums need it");
  switchOff("patients", !hasPatients, "only for a patient's record");
  $("is_once").disabled = hasPatients;
  $("clients-name").textContent = hasPatients ? "Hospitals" : "Clients a round";
  switchOff("rate", !isEntry, "the scheme chooses them");
  $("epsilon-unit").textContent = isEntry ? "for each entry" : hasPatients ? "for a patient, in all rounds" : "for a client, in all";
  $("once-unit").textContent = hasPatients ? "a patient may be drawn in every round" : s.is_once ? `${plain(s.clients * s.rounds)} clients in all` : "else each takes part in all rounds";
  const a = answer(s);
  last = { setting: s, answer: a };
  if (a.refused) {
    const why = data.reasons[a.refused].replace(/\{(\w+)\}/g, (_, name) => plain({ ...s, times: times(s) }[name]));
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

function switchOff(name, isOff, why) {
  $(name).disabled = isOff;
  $(name).closest(".slider").classList.toggle("off", isOff);
  $(`${name}-unit`).textContent = isOff ? why : "";
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
      isRecords(s) ? `No attack on sums over hospitals was measured. The server and the other hospitals see one total of ${plain(s.clients)} hospitals, with the noise of ε = ${s.epsilon} for a patient in it.` :
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
const look = (name) => { const [light, night, shape] = data.looks[name]; return { colour: dark.matches ? night : light, shape }; };
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
  const rows = [], labels = [];
  const perEntry = data.per_entry.includes(s.scheme) ? s.scheme : "response";
  for (const scheme of ["records", "sphere", "clients", perEntry]) {
    const here = axes.clients.map((clients) => ({ clients, ...answer({ ...s, scheme, clients }) })).filter((one) => !one.refused);
    const opacity = scheme === s.scheme ? 1 : 0.8;
    for (const { clients, averaged: error } of here) {
      rows.push({ scheme, clients, error, opacity, ...look(scheme), tip: `${scheme}, ${plain(clients)} clients: ${smallText(error)}` });
    }
    if (here.length) {
      const at = here[Math.min(1, here.length - 1)];
      const unit = data.per_entry.includes(scheme) ? " (ε for an entry)" : isRecords({ scheme }) ? " (ε for a patient)" : "";
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
  fill(view, "here", a.refused ? [] : [{ clients: s.clients, error: a.averaged, ...look(s.scheme) }]);
  view.resize().runAsync();
  $("learn").setAttribute("aria-label", a.refused ? "no numbers at this setting" :
    `Chart of error over signal against clients. At your setting of ${plain(s.clients)} clients it is ${smallText(a.averaged)}; above ${drowned} nothing reliable is learnt.`);
}

function drawEpsilon(a) {
  const units = isRecords(last.setting) ? [["a patient", a.epsilon_person]] : [["an entry", a.epsilon_entry], ["an update", a.epsilon_update], ["a client", a.epsilon_person]];
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
  const float32 = 4 * s.entries;
  const rows = [{ row: "float32", start: 1, bytes: float32, text: bytesText(float32), ...look("none") }];
  for (const scheme of ["records", "sphere", "clients", perEntry]) {
    const one = answer({ ...s, scheme });
    if (!one.refused) rows.push({ row: scheme === s.scheme ? `▸ ${scheme}` : scheme, start: 1, bytes: one.bytes_a_round, text: bytesText(one.bytes_a_round), ...look(scheme) });
  }
  fill(views.bytes, "rows", rows);
  views.bytes.resize().runAsync();
  $("bytes-hint").textContent = `Up, in one round. sphere sends the number of a codeword, in a round whose terms were agreed once. ${perEntry} is shown at ${bitsText(s.rate)} an entry. The way down, the model itself, is not counted.`;
  $("bytes").setAttribute("aria-label", rows.map(({ row, text }) => `${row}: ${text}`).join("; "));
}

// Start

for (const name of AXES) Object.assign($(name), { min: 0, step: 1 });
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
    else if (name === "scheme" && Object.hasOwn(data.looks, text) && text !== "none") s.scheme = text;
    else if (AXES.includes(name) && axes[name].includes(Number(text))) s[name] = Number(text);
  }
  return s;
}
$("version").textContent = `jopeq ${data.version}. ε against the server, who knows payload, dither, scale and scheme. Pure ε add up; jopeq plan shows what a δ saves.`;
put(remembered());
build();
window.explorer = { put, state: () => last, lines: () => Object.fromEntries(["python", "cli", "flower"].map((kind) => [kind, $(kind).textContent])) };
