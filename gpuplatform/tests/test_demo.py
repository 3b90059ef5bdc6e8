"""What a new installation begins with."""

import stat
from pathlib import Path

import pytest

from accounts.models import ResourcePolicy, User
from gpuplatform.bootstrap.demo import demo
from resources.models import Preset, ResourceGroup

pytestmark = pytest.mark.django_db


@pytest.fixture
def logins_file(tmp_path: Path) -> Path:
    """Return a file for the passwords, after a first set-up."""
    demo.create(tmp_path / "logins.json")
    return tmp_path / "logins.json"


def test_the_demo_group_divides_gpus_and_overcommits_cpu(logins_file: Path) -> None:
    group = ResourceGroup.objects.get()
    assert (group.name, group.fgpu_per_gpu, group.core_milli, group.open_to_all) == ("default", 2, 250, True)
    presets = [("no-gpu", 0), ("small", 500), ("medium", 1000), ("large", 2000)]
    assert list(Preset.objects.values_list("name", "fgpu")) == presets


def test_the_printed_passwords_work_and_are_private(logins_file: Path) -> None:
    logins = {login.email: login.password for login in demo.logins(logins_file)}
    assert set(logins) == {"admin@example.org", "user@example.org", "developer@example.org"}
    assert all(User.objects.get(email=email).check_password(password) for email, password in logins.items())
    assert User.objects.get(email="admin@example.org").is_superuser
    assert not User.objects.get(email="user@example.org").is_superuser
    assert stat.S_IMODE(logins_file.stat().st_mode) == 0o600


def test_one_demo_user_may_use_sudo_and_convert(logins_file: Path) -> None:
    allowed = User.objects.filter(policy__allow_sudo=True, policy__allow_conversion=True)
    assert list(allowed.values_list("email", flat=True)) == ["developer@example.org"]
    ordinary, developers = ResourcePolicy.objects.get(name="default"), ResourcePolicy.objects.get(name="developers")
    assert developers.limits() == ordinary.limits()


def test_a_second_set_up_changes_nothing(logins_file: Path) -> None:
    before = (logins_file.read_text(), list(User.objects.values()), list(Preset.objects.values()))
    demo.create(logins_file)
    assert (logins_file.read_text(), list(User.objects.values()), list(Preset.objects.values())) == before


def test_admin_changes_survive_another_setup(logins_file: Path) -> None:
    User.objects.get(email="user@example.org").delete()
    Preset.objects.get(name="large").delete()
    admin = User.objects.get(email="admin@example.org")
    admin.set_password("something else entirely")
    admin.save()
    demo.create(logins_file)
    assert set(User.objects.values_list("email", flat=True)) == {"admin@example.org", "developer@example.org"}
    assert not Preset.objects.filter(name="large").exists()
    assert [login.email for login in demo.logins(logins_file)] == ["developer@example.org"]


def test_without_a_demo_no_logins_are_printed(tmp_path: Path) -> None:
    assert demo.logins(tmp_path / "absent.json") == []
