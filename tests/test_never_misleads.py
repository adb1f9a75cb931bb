"""Stories of users who were misled, or left with nothing; none may happen again.

Each test is one way to publish something false, or to fail on an ordinary study, told
as the user met it. The modules' own tests look closer.
"""

import numpy as np
import pytest

# -- the solver ------------------------------------------------------------------------


# -- labels, subjects and their order --------------------------------------------------


# -- voxels and files in memory --------------------------------------------------------


# -- evaluations and their store -------------------------------------------------------


# -- components and the report ---------------------------------------------------------


# -- the command line and the BIDS App -------------------------------------------------


# -- files from elsewhere --------------------------------------------------------------


def bids_dataset(folder, **options):
    from brainweave.study import simulate_study

    study = simulate_study(
        n_subjects=2, categories=3, n_runs=2, n_voxels=120, duration=10.0, **options
    )
    return study.to_bids(folder / "bids", raw=False), study


def add_button_presses(folder):
    import pandas as pd

    for path in folder.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        presses = table.assign(
            onset=table["onset"] + 4.0, duration=0.0, trial_type="button_press"
        )
        pd.concat([table, presses]).to_csv(path, sep="\t", index=False, na_rep="n/a")


def test_one_label_to_ignore_is_ignored(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    loaded = load_bids(folder, ignore="button_press")
    assert loaded.categories == study.categories
    assert loaded[0].labels.tolist() == study[0].labels.tolist()


def test_button_presses_take_no_volumes_from_blocks(tmp_path):
    from brainweave import load_bids

    folder, study = bids_dataset(tmp_path)
    add_button_presses(folder)
    with pytest.warns(UserWarning, match="volumes lie under events of more than one"):
        loaded = load_bids(folder)
    assert loaded[0].labels.tolist() == study[0].labels.tolist()
    run = loaded.record["runs"]["01"]["1"]
    assert run["shared_volumes"] > 0
    assert run["overshadowed"] > 0


@pytest.mark.parametrize(
    ("what", "message"),
    [("RepetitionTime", "milliseconds: write 2.5"), ("onset", "milliseconds")],
)
def test_milliseconds_do_not_leave_a_study_of_four_samples(tmp_path, what, message):
    import json

    import pandas as pd

    from brainweave import load_bids
    from brainweave.exceptions import StudyError

    folder, _ = bids_dataset(tmp_path)
    for path in folder.rglob("*_bold.json"):
        content = json.loads(path.read_text())
        if what in content:
            path.write_text(json.dumps({**content, what: 1000 * content[what]}))
    for path in folder.rglob("*_events.tsv"):
        table = pd.read_csv(path, sep="\t")
        if what in table:
            table[what] *= 1000
            table.to_csv(path, sep="\t", index=False)
    with pytest.raises(StudyError, match=message):
        load_bids(folder)


def test_a_mat_file_reads_no_other_file(tmp_path):
    import h5py

    from brainweave.exceptions import StudyError
    from brainweave.study.matlab import load_matlab

    (tmp_path / "private").write_bytes(np.arange(24.0).tobytes())
    with h5py.File(tmp_path / "gift.mat", "w") as file:
        outside = [(str(tmp_path / "private"), 0, 24 * 8)]
        file.create_dataset("data", (2, 3, 4), "f8", external=outside)
    with pytest.raises(StudyError, match="lies in other files"):
        load_matlab(tmp_path / "gift.mat")


def test_replacing_a_study_keeps_the_notes_beside_it(tmp_path):
    from brainweave.study import simulate_study

    study = simulate_study(n_subjects=2, n_voxels=30, n_runs=1, categories=2)
    study.save(tmp_path / "study")
    (tmp_path / "study" / "notes.txt").write_text("three months of work")
    (tmp_path / "study" / "results").mkdir()
    (tmp_path / "study" / "results" / "table.csv").write_text("1,2")
    study.subset(["01"]).save(tmp_path / "study", overwrite=True)
    assert (tmp_path / "study" / "notes.txt").read_text() == "three months of work"
    assert (tmp_path / "study" / "results" / "table.csv").is_file()


def test_a_flipped_byte_does_not_go_into_a_fit(tmp_path):
    from brainweave.exceptions import StudyError
    from brainweave.study import Study, simulate_study

    study = simulate_study(n_subjects=2, n_voxels=30, n_runs=1, categories=2)
    study.save(tmp_path / "study")
    path = tmp_path / "study" / "sub-01.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    path.write_bytes(content)
    with pytest.raises(StudyError, match=r"sub-01.npy' was edited or damaged"):
        Study.open(tmp_path / "study")
