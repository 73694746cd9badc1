import errno
import os
import stat

import pytest

from nescio.data import check_writable, replacing
from nescio.types import InputError


def test_a_file_appears_whole_and_with_ordinary_rights(tmp_path):
    target = tmp_path / "result.txt"
    with replacing(target) as part:
        part.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.txt"]
    (tmp_path / "plain").write_text("")
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    target = tmp_path / "result.txt"
    target.write_text("old")
    with pytest.raises(failure), replacing(target) as part:
        part.write_text("half")
        raise failure
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_a_full_disk_is_said_in_words(tmp_path):
    with (
        pytest.raises(InputError, match=r"cannot write .*result\.txt: No space left on device; nothing was left"),
        replacing(tmp_path / "result.txt") as part,
    ):
        part.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []


def test_rights_of_a_replaced_file_and_a_link_to_it_stay(tmp_path):
    target, link = tmp_path / "result.txt", tmp_path / "link.txt"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as part:
        part.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_what_cannot_be_written_is_refused_before_work(tmp_path):
    check_writable(tmp_path / "fine.html")
    assert os.listdir(tmp_path) == []
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist; create it first"):
        check_writable(tmp_path / "nowhere" / "x.html")
    with pytest.raises(InputError, match="a device or a pipe"):
        check_writable("/dev/null")


def test_a_folder_that_refuses_new_files(tmp_path, monkeypatch):
    def refuse(**settings):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        check_writable(tmp_path / "x.html")
    with pytest.raises(InputError, match="Permission denied"), replacing(tmp_path / "x.html"):
        pass
