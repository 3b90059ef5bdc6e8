"""Rows of launch templates."""

from typing import Any

from accounts.models import User
from specs.models import LaunchTemplate, TemplateVersion

TEXT = """kind: template
name: train
parameters:
- name: lr
  type: decimal
  default: '0.1'
launch:
  kind: session
  image: lab/pytorch:2
  cpu: 1
  memory: 1g
  command: python train.py --lr ${{ lr }}
"""


def make_template(owner: User | None = None, text: str = TEXT, **fields: Any) -> LaunchTemplate:
    """Return a template with one version: of a project where one is given, else of the owner, or of everybody."""
    holder = {"owner": None if "project" in fields else owner}
    made = LaunchTemplate.objects.create(
        **{"name": "train", "kind": "session", "icon": "play", "color": "blue", **holder, **fields}
    )
    TemplateVersion.objects.create(template=made, number=1, text=text, author=owner)
    return made
