"""What people read is what the JSON says."""

from __future__ import annotations

import io
import math

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from socialrl_cli.report.tables import curve, difference_line, opponent_table, score_table, sparkline

ROWS = {
    "trained": {
        "mean": 0.61234,
        "low": 0.58,
        "high": 0.64,
        "sd": math.nan,
        "agreement": 0.934,
        "invalid": 0.0123,
        "failed": 0,
        "games": 800,
        "by_opponent": {"scripted:linear": {"mean": 0.5, "low": 0.48, "high": 0.52}, "openai:m@u": {"mean": 0.4}},
    },
    "scripted:demand_all": {"mean": 0.0, "low": 0.0, "high": 0.0, "failed": 0, "games": 800},
}


def shown(renderable: object) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(renderable)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines() if line.strip())


def test_a_score_table_shows_the_figures_that_some_row_has() -> None:
    assert shown(score_table(ROWS, title="held out", star="trained")) == (
        "held out\n"
        " policy                reward     95% interval   agreement   invalid   games\n"
        " ───────────────────────────────────────────────────────────────────────────\n"
        " trained                0.612   0.580 to 0.640         93%      1.2%     800\n"
        " scripted:demand_all    0.000   0.000 to 0.000           –         –     800"
    )


def test_a_long_name_is_cut_before_a_figure_is() -> None:
    lines = shown(score_table({"scripted:" + "x" * 200: ROWS["trained"]}))
    assert "0.612   0.580 to 0.640         93%      1.2%     800" in lines
    assert "x…" in lines


def test_failed_games_are_shown_where_there_are_any() -> None:
    row = ROWS["trained"] | {"failed": 3}
    assert "failed" in shown(score_table({"a": row}))
    assert "failed" not in shown(score_table(ROWS))


def test_a_table_by_opponent_shows_half_the_interval() -> None:
    assert shown(opponent_table(ROWS, marks={"scripted:linear": " (held out)"})) == (
        " policy                linear (held out)   openai:m@u\n"
        " ────────────────────────────────────────────────────\n"
        " trained                     0.500 ±.020        0.400\n"
        " scripted:demand_all                   –            –"
    )


def test_a_difference_is_one_line() -> None:
    figures = {"mean": 0.12, "low": -0.01, "high": 0.25, "games": 40}
    line = "trained − warm start: +0.120 [-0.010, +0.250], paired over 40 games"
    assert difference_line(figures, a="warm start", b="trained") == line


def test_a_sparkline_spans_its_values_and_leaves_gaps() -> None:
    assert sparkline([0.0, 0.5, math.nan, 1.0]) == "▁▅ █"
    assert sparkline([0.5], low=0.0, high=1.0) == "▅"
    assert sparkline([1.0, 1.0]) == "▅▅"
    assert sparkline([]) == ""


def test_a_curve_rises_where_its_points_rise() -> None:
    assert curve([(1, 0.0), (2, 0.5), (3, 1.0)], height=2, title="reward") == (
        "reward\n  1.00 │  █\n  0.00 │▁██\n       └───\n        step 1 to 3"
    )
    assert curve([], title="reward") == "reward: no points yet"


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-10, 10) | st.just(math.nan)), max_size=40))
def test_a_curve_of_anything_keeps_its_size(points: list[tuple[float, float]]) -> None:
    lines = curve(points, width=20, height=5).splitlines()
    assert len(lines) in (1, 7)
    assert all(len(line) <= 8 + 20 or line.startswith(" " * 8) for line in lines)
