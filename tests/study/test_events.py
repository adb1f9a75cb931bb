import gzip
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from brainweave._core.exceptions import StudyError
from brainweave.study.formats.events import (
    Events,
    find_blocks,
    match_volumes,
    read_events,
)


def write(path, text):
    path.write_text(text)
    return path


def test_reading_sorts_by_onset_and_drops_rest(tmp_path):
    path = write(
        tmp_path / "events.tsv",
        "onset\tduration\ttrial_type\tstim_file\n"
        "8\t2\thouse\th.png\n0\t2\tface\tf.png\n4\tn/a\trest\tn/a\n6\t1\tn/a\tx.png\n",
    )
    events = read_events(path, stimulus="stim_file")
    assert events.label.tolist() == ["face", "house"]
    assert events.stimulus.tolist() == ["f.png", "h.png"]
    assert_allclose(events.onset, [0, 8], atol=0)


def test_any_column_can_be_the_category(tmp_path):
    path = write(
        tmp_path / "events.tsv",
        "onset\tduration\ttrial_type\temotion\n0\t1\tgo\tjoy\n2\tn/a\tgo\tfear\n",
    )
    events = read_events(path, label="emotion")
    assert events.label.tolist() == ["joy", "fear"]
    assert not events.stimulus.any()
    assert_allclose(events.duration, [1, 0], atol=0)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "is empty: not even a header"),
        ("onset\tduration\ttrial_type\n", {}, "a header but no events"),
        ("onset\tduration\tcondition\n0\t1\ta\n", {}, "'trial_type'.*'condition'.*la"),
        (
            "onset\tduration\ttrial_type\n0\t1\ta\n",
            {"stimulus": "image"},
            "no column 'image'.* stimulus=",
        ),
        ("onset\ttrial_type\n0\ta\n", {}, "no column 'duration'.*BIDS wants onset"),
        (
            "onset\tduration\ttrial_type\nx\t1\ta\n",
            {},
            "onset is not .*'x'",
        ),
        ("onset\tduration\ttrial_type\nn/a\t1\ta\n", {}, "row 1 begins at nan"),
        ("onset\tduration\ttrial_type\n0\t-1\ta\n", {}, "row 1 .* lasts -1 s"),
        ("onset\tduration\ttrial_type\ninf\t1\ta\n", {}, "row 1 begins at inf"),
    ],
)
def test_bad_files_are_named_with_the_reason(tmp_path, text, options, message):
    path = write(tmp_path / "sub-01_events.tsv", text)
    with pytest.raises(StudyError, match=f"sub-01_events.tsv.*{message}"):
        read_events(path, **options)


def test_binary_file_is_not_a_table(tmp_path):
    path = tmp_path / "events.tsv"
    path.write_bytes(b"\x1f\x8b\xff\xfe\x00")
    with pytest.raises(StudyError, match="not a tab-separated table"):
        read_events(path)


def test_later_of_two_events_counts_where_they_cover_a_volume_alike():
    events = Events.from_rows([(0, 10, "long"), (4, 2, "short")])
    shown = match_volumes(events, 6, 2.0, hrf_delay=0.0)[0]
    assert shown.tolist() == [0, 0, 1, 0, 0, -1]


PRESSED = Events.from_rows([(0, 10, "face"), (4, 0, "press"), (12, 0, "press")])


def test_volumes_under_two_events_show_the_one_that_covers_most():
    found = match_volumes(PRESSED, 7, 2.0, hrf_delay=0.0)[0]
    assert found.tolist() == [0, 0, 0, 0, 0, -1, 2]


@pytest.mark.parametrize(
    ("label", "stays"),
    [
        *(("REST", False), ("rest_2", False), ("Fixation cross", False)),
        *(
            ("n/a", False),
            ("NaN", False),
            ("iti", False),
            ("Inter-trial interval", False),
        ),
        *(("response", False), ("Responses", False), ("button_press", False)),
        *(("buttonPresses", False), ("keypress", False), ("null event", False)),
        *(("restaurant", True), ("response_left", True), ("fix", True), ("1", True)),
        *(("button_face", True), ("face", True), ("isis", False)),
    ],
)
def test_labels_that_no_analysis_takes_for_stimuli_are_left_out(label, stays):
    events = Events.from_rows([(0, 2, label), (4, 2, "face")])
    kept = events.stimuli()
    assert kept.label.tolist() == ([label] if stays else []) + ["face"]
    assert sum(kept.left_out.values()) == (not stays)
    if label not in ("n/a", "NaN"):
        assert events.stimuli(keep=[label]).label.tolist() == [
            label,
            "face",
        ]
        assert label not in events.stimuli(ignore=[label]).label.tolist()


def test_one_ignored_label_needs_no_list(tmp_path):
    path = write(
        tmp_path / "events.tsv",
        "onset\tduration\ttrial_type\n0\t2\tpress\n4\t2\tface\n6\t2\tp\n",
    )
    assert read_events(path, ignore=["press"]).label.tolist() == [
        "face",
        "p",
    ]


def test_event_shorter_than_a_volume_has_one():
    events = Events.from_rows([(1.0, 0.0, "a"), (5.0, 0.1, "b")])
    shown = match_volumes(events, 10, 2.0, hrf_delay=3.0)[0]
    assert np.bincount(shown[shown >= 0]).tolist() == [1, 1]


def test_rounded_onsets_do_not_move_a_boundary():
    exact = Events.from_rows([(2.2, 4.4, "a")])
    rounded = Events.from_rows([(2.2000001, 4.3999999, "a")])
    for events in (exact, rounded):
        shown = match_volumes(events, 8, 1.1, hrf_delay=0.0)[0]
        assert shown.tolist() == [-1, -1, 0, 0, 0, 0, -1, -1]


@given(
    gaps=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    lengths=st.lists(st.integers(1, 5), min_size=8, max_size=8),
    tr=st.sampled_from([0.72, 1.0, 2.0, 2.5]),
    delay=st.integers(0, 3),
)
def test_blocks_on_volume_boundaries_get_exactly_their_volumes(
    gaps, lengths, tr, delay
):
    rows, now = [], 0
    for k, gap in enumerate(gaps):
        rows.append(((now + gap) * tr, lengths[k] * tr, f"c{k}"))
        now += gap + lengths[k]
    shown = match_volumes(Events.from_rows(rows), now + 4, tr, hrf_delay=delay * tr)[0]
    counts = np.bincount(shown[shown >= 0], minlength=len(gaps))
    assert counts.tolist() == lengths[: len(gaps)]


def test_other_events_and_long_gaps_end_a_block():
    pictures = Events.from_rows(
        [(0, 1, "a"), (2, 1, "a"), (4, 1, "b"), (6, 1, "a"), (20, 1, "a")]
    )
    blocks = find_blocks(pictures)
    assert blocks.label.tolist() == ["a", "b", "a", "a"]
    assert_allclose(blocks.duration, [3, 1, 1, 1], atol=1e-12)
    assert len(find_blocks(pictures.take(np.array([], dtype=int)))) == 0


def test_cells_beyond_the_header_do_not_shift_the_others(tmp_path):
    path = write(tmp_path / "e.tsv", "onset\tduration\ttrial_type\n3\t2\tface\t9\n")
    with pytest.warns(Warning, match="does not match length of data"):
        events = read_events(path)
    assert (events.onset.tolist(), events.label.tolist()) == ([3.0], ["face"])


def test_a_table_of_any_size_is_read_or_refused_at_once(tmp_path):
    header, row = "onset\tduration\ttrial_type", "1\t2\tface"
    wide, long_row = tmp_path / "wide.tsv", tmp_path / "row.tsv"
    wide.write_text(header + "\tx" * 10**6 + f"\n{row}\n")
    long_row.write_text(f"{header}\n{row}" + "\tx" * 10**6)
    bomb = tmp_path / "bomb.tsv.gz"
    with gzip.open(bomb, "wb") as file:
        for _ in range(80):
            file.write(bytes(2**20))
    begin = time.monotonic()
    for path in (wide, long_row, bomb):
        with pytest.raises(StudyError, match="too much for a table of events"):
            read_events(path)
    assert time.monotonic() - begin < 30
