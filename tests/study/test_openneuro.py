"""OpenNeuro through its own client, against a local server that stands in for it."""

import errno
import json
import sys
from fnmatch import fnmatchcase
from types import ModuleType

import numpy as np
import pytest

from brainweave._core.exceptions import InputError, StudyError
from brainweave.study.public import fetch_openneuro

pytestmark = pytest.mark.network
RNG = np.random.default_rng(0)
FILES = {
    "dataset_description.json": json.dumps(
        {"Name": "toy", "DatasetDOI": "doi:10.18112/openneuro.ds000105.v1.0.0"}
    ).encode(),
    "participants.tsv": b"participant_id\nsub-1\nsub-2\n",
    "sub-1/func/sub-1_task-view_run-01_bold.nii.gz": RNG.bytes(50_000),
    "sub-1/func/sub-1_task-rest_run-01_bold.nii.gz": RNG.bytes(20_000),
    "sub-1/anat/sub-1_T1w.nii.gz": RNG.bytes(30_000),
    "sub-2/func/sub-2_task-view_run-01_bold.nii.gz": RNG.bytes(40_000),
}


@pytest.fixture
def openneuro(server, monkeypatch):
    """The server as OpenNeuro, with a snapshot of the files above."""
    for name, content in FILES.items():
        server.files["s3/" + name] = content

    def answer(query):
        if "ds000105" not in query:
            return {"errors": [{"message": "Not found"}], "data": {"dataset": None}}
        snapshot = {
            "id": "ds000105:1.0.0",
            "files": [
                {
                    "filename": name,
                    "size": len(content),
                    "id": name,
                    "urls": [server.url + "s3/" + name],
                }
                for name, content in FILES.items()
            ],
        }
        return {"data": {"dataset": {"latestSnapshot": snapshot}, "snapshot": snapshot}}

    server.graphql = answer
    return server


@pytest.fixture
def client(openneuro, monkeypatch):
    """The real client, sent to the local server."""
    pytest.importorskip("openneuro", reason="openneuro-py comes with the extra 'fetch'")
    import openneuro._download as inside

    monkeypatch.setattr(inside, "gql_url", openneuro.url + "graphql")
    monkeypatch.setattr(inside.time, "sleep", lambda seconds: None)  # before a retry
    return openneuro


@pytest.fixture
def stand_in(openneuro, monkeypatch):
    """A client that does what the test says."""
    fake = ModuleType("openneuro")
    fake.calls = []

    def download(*, dataset, tag, target_dir, include):
        fake.calls.append(include)
        for name in FILES:
            patterns = ["*"] if include is None or "/" not in name else include[:-1]
            if not any(fnmatchcase(f"/{name}", f"{pattern}*") for pattern in patterns):
                continue
            path = target_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(FILES[name])

    fake.download = download
    monkeypatch.setitem(sys.modules, "openneuro", fake)
    return fake


def names_in(folder):
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_client_fetches_a_part(client, tmp_path):
    folder = fetch_openneuro(
        "ds000105", subjects=["sub-1"], task="view", cache_dir=tmp_path
    )
    assert names_in(folder) == {
        "dataset_description.json",
        "participants.tsv",
        "sub-1/func/sub-1_task-view_run-01_bold.nii.gz",
    }
    for name in names_in(folder):
        assert (folder / name).read_bytes() == FILES[name]


def test_the_client_resumes_a_broken_connection(client, tmp_path):
    name = "sub-1/func/sub-1_task-view_run-01_bold.nii.gz"
    client.break_after["s3/" + name] = [10_000]
    folder = fetch_openneuro("ds000105", cache_dir=tmp_path)
    assert (folder / name).read_bytes() == FILES[name]
    assert any(entry[2] for entry in client.gets("s3/" + name))


def test_the_client_notices_other_bytes(client, tmp_path, monkeypatch):
    name = "sub-1/anat/sub-1_T1w.nii.gz"
    folder = fetch_openneuro("ds000105", cache_dir=tmp_path)
    changed = bytearray(FILES[name])
    changed[0] ^= 1
    (folder / name).write_bytes(changed)  # the same size, another content
    fetch_openneuro("ds000105", cache_dir=tmp_path)
    assert (folder / name).read_bytes() == FILES[name]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left"), "disk was full .*fetch again"),
        (
            RuntimeError("2 files failed"),
            "Could not download ds000105 .*2 files failed",
        ),
        (ConnectionError("reset"), "reset.*try again when online to resume"),
    ],
)
def test_errors_of_the_client_are_explained(
    stand_in, tmp_path, monkeypatch, error, message
):
    def download(**options):
        raise error

    monkeypatch.setattr(stand_in, "download", download)
    with pytest.raises(StudyError, match=message):
        fetch_openneuro("ds000105", cache_dir=tmp_path)


def test_a_task_and_a_tag_choose(stand_in, tmp_path):
    folder = fetch_openneuro(
        "ds000105",
        task="view",
        tag="1.0.0",
        cache_dir=tmp_path,
    )
    assert folder.name == "ds000105-1.0.0"
    assert {name.split("/")[-1] for name in names_in(folder)} == {
        "dataset_description.json",
        "participants.tsv",
        "sub-1_task-view_run-01_bold.nii.gz",
        "sub-2_task-view_run-01_bold.nii.gz",
    }


def test_what_does_not_exist_is_said(client, tmp_path):
    with pytest.raises(InputError, match="like 'ds000105', got '105'"):
        fetch_openneuro("105", cache_dir=tmp_path)
    with pytest.raises(StudyError, match="Could not download ds999999"):
        fetch_openneuro("ds999999", cache_dir=tmp_path)
    with pytest.raises(StudyError, match=r"Could not download ds000105 .*- /sub-9"):
        fetch_openneuro("ds000105", subjects=["9"], cache_dir=tmp_path)
    with pytest.raises(TypeError, match="subjects of fetch_openneuro must be a list"):
        fetch_openneuro("ds000105", subjects=1.5, cache_dir=tmp_path)


def test_without_the_client_the_extra_is_named(openneuro, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openneuro", None)
    with pytest.raises(ImportError, match=r"pip install \"brainweave\[fetch\]\""):
        fetch_openneuro("ds000105", cache_dir=tmp_path)
