"""Where apps show the file for which a session was launched."""

import pytest

from endpoints.launcher.opened_files import path_of

ORIGIN = "https://vscode-1.apps.example.org:8443"
TREE = "/home/work/my repo"


@pytest.mark.parametrize(
    ("app", "tree", "file", "path"),
    [
        ("jupyterlab", TREE, "a/first.ipynb", "/lab/tree/my%20repo/a/first.ipynb"),
        ("jupyterlab", TREE, "", "/lab/tree/my%20repo"),
        ("jupyterlab", "/data/repo", "first.ipynb", "/lab/tree/"),
        ("jupyter", TREE, "first.ipynb", "/notebooks/my%20repo/first.ipynb"),
        ("jupyter", TREE, "train.py", "/tree/my%20repo"),
        ("vscode", TREE, "", "/?folder=%2Fhome%2Fwork%2Fmy+repo"),
        ("tensorboard", TREE, "train.py", "/"),
    ],
)
def test_each_app_has_its_own_address_of_a_file(app: str, tree: str, file: str, path: str) -> None:
    assert path_of(app, ORIGIN, tree, file) == path


def test_vs_code_opens_the_file_of_its_own_host() -> None:
    path = path_of("vscode", ORIGIN, TREE, 'a"b.py')
    assert "vscode-remote%3A%2F%2Fvscode-1.apps.example.org%3A8443%2Fhome%2Fwork%2Fmy%2520repo%2Fa%2522b.py" in path
