"""Folders that are whole or not there: whatever happens to a file of one is told by the file's name."""

import json
import os

import pytest

from real_openrlhf import whole_folders
from real_openrlhf.whole_folders import MANIFEST

CONTENT = {"a.bin": b"\0" * 1000, "deep/b.bin": bytes(range(256)), "empty": b""}


def draft_of(folder, content=CONTENT):
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def publish(parent, step, content=CONTENT):
    draft = draft_of(parent / ".writing" / f"global_step{step}", content)
    files = whole_folders.read(draft, whole_folders.names(draft))
    whole_folders.publish(draft, parent / draft.name, files, {"global_step": step})
    return parent / draft.name


def test_a_published_folder_is_whole_and_its_draft_is_gone(tmp_path):
    place = publish(tmp_path, 4)
    assert whole_folders.damage(place) is None
    assert whole_folders.names(place) == ["a.bin", "deep/b.bin", "empty"]
    assert list((tmp_path / ".writing").iterdir()) == []


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "truncated": (lambda place: os.truncate(place / "a.bin", 999), "a.bin has 999 of 1000 bytes"),
    "longer": (lambda place: (place / "empty").write_bytes(b"x"), "empty has 1 of 0 bytes"),
    "bit flipped": (lambda place: flip(place / "deep/b.bin"), "deep/b.bin is not what was written"),
    "missing": (lambda place: (place / "a.bin").unlink(), "a.bin is missing"),
    "a folder in its place": (
        lambda place: ((place / "empty").unlink(), (place / "empty").mkdir()),
        "empty is missing",
    ),
    "no manifest": (lambda place: (place / MANIFEST).unlink(), f"{MANIFEST} is missing"),
    "half a manifest": (lambda place: os.truncate(place / MANIFEST, 60), f"{MANIFEST} is missing or cannot be read"),
    "another manifest": (lambda place: (place / MANIFEST).write_text('{"files": {"a": 1}}'), "cannot be read"),
    "a list": (lambda place: (place / MANIFEST).write_text("[]"), "cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_by_name(tmp_path, damage):
    place = publish(tmp_path, 4)
    harm, said = DAMAGES[damage]
    harm(place)
    assert said in whole_folders.damage(place)


def test_each_flipped_bit_of_a_manifest_is_seen_or_harmless(tmp_path):
    """What it says of the files cannot be changed unseen; a changed step only changes what is tried first."""
    place = publish(tmp_path, 4, {"a.bin": b"abc"})
    text = (place / MANIFEST).read_bytes()
    unseen = []
    for position in range(8 * len(text)):
        changed = bytearray(text)
        changed[position // 8] ^= 1 << position % 8
        (place / MANIFEST).write_bytes(changed)
        if whole_folders.damage(place) is None:
            unseen.append(json.loads(changed))
    assert all(list(content["files"].values()) == [[3, json.loads(text)["files"]["a.bin"][1]]] for content in unseen)


def test_ranks_share_the_reading(tmp_path):
    place = publish(tmp_path, 4)
    flip(place / "deep/b.bin")
    found = [whole_folders.damage(place, slice(rank, None, 3)) for rank in range(3)]
    assert len([one for one in found if one]) == 1


def test_the_newest_is_first_whatever_the_clock_says(tmp_path):
    for step in (4, 12, 8):
        os.utime(publish(tmp_path, step), (1e9 - step, 1e9 - step))
    (tmp_path / "latest").write_text("global_step8")
    draft_of(tmp_path / ".writing" / "global_step16")
    unlisted = draft_of(tmp_path / "global_step20")
    assert [path.name for path in whole_folders.newest_first(tmp_path)] == [
        *("global_step12", "global_step8", "global_step4"),
        unlisted.name,
    ]


def test_publishing_again_replaces_what_was_there(tmp_path):
    publish(tmp_path, 4)
    place = publish(tmp_path, 4, {"only": b"this"})
    assert whole_folders.damage(place) is None and whole_folders.names(place) == ["only"]


def test_the_pointer_is_replaced_as_a_whole(tmp_path):
    for step in (4, 8):
        whole_folders.point_to(publish(tmp_path, step))
    assert (tmp_path / "latest").read_text() == "global_step8"
    assert not list(tmp_path.glob(".latest*"))
