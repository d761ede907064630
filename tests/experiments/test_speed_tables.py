from jopeq.experiments.speed_tables import (
    all_tables,
    error,
    gpu_target_table,
    millions,
    power,
    seconds,
    times,
)


def test_gpu_targets_count_the_slowest_row(kept_speed):
    gpu = kept_speed["gpu"]
    before = {row[0]: row[-1] for row in gpu_target_table(gpu).rows}
    gpu["schemes"]["sdq R=8"]["encode"] = 1e9
    after = {row[0]: row[-1] for row in gpu_target_table(gpu).rows}
    assert after["sdq on Z"] == "no"
    del before["sdq on Z"], after["sdq on Z"]
    assert before == after


def test_tables_are_rectangular(kept_speed):
    for shown in all_tables(kept_speed):
        assert shown.rows, shown.title
        assert {len(row) for row in shown.rows} == {len(shown.head)}, shown.title


def test_numbers():
    assert (millions(2.36e9), millions(9.8e6), millions(1.25e6)) == ("2,360", "9.8", "1.2")
    assert (times(0.5), times(4.04), times(123.4)) == ("0.50×", "4.0×", "123×")
    assert (error(0.0), error(3.9e-4), error(0.334)) == ("0", "3.9e-04", "0.334")
    assert (power(1000), power(10**8), power(1500)) == ("10³", "10⁸", "1,500")
    assert (seconds(31.2), seconds(0.0123)) == ("31 s", "12 ms")
    assert seconds(4e-6) == "< 0.1 ms"
