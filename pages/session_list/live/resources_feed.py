"""The bars and GPU blocks of open pages as numbers and words, for their scripts: {"resources": {...}}."""

import json
from collections.abc import Collection

from django.utils import translation

from accounts.models import User
from pages.session_list.occupancy import occupancy_of
from pages.session_list.resource_bars import Bar, GpuMap, bars_of, gpu_map, gpu_shares_of, held_by
from resources.amounts.units import fgpu_text
from resources.models import ResourceGroup

Viewer = tuple[int, int, str]  # user, group, language


def resource_messages(viewers: Collection[Viewer]) -> dict[Viewer, str]:
    """Return the message for each viewer; two queries, and four for each group."""
    users = {
        user.pk: user for user in User.objects.filter(pk__in={viewer[0] for viewer in viewers}).select_related("policy")
    }
    held = held_by(sorted(users))
    messages = {}
    for group in ResourceGroup.objects.filter(pk__in={viewer[1] for viewer in viewers}):
        occupancy = occupancy_of(group)
        shares = gpu_shares_of(sorted(users), group.pk)
        for viewer in viewers:
            user_id, group_id, language = viewer
            if group_id != group.pk or user_id not in users:
                continue
            with translation.override(language):
                bars = bars_of(users[user_id].policy.limits(), held.get(user_id, {}), group_id, occupancy.free)
                messages[viewer] = _message(group_id, bars, gpu_map(occupancy, shares.get(user_id, {})))
    return messages


def _message(group_id: int, bars: list[Bar], gpus: GpuMap) -> str:
    blocks: dict[int | str, list[str]] = {
        block.device.id: [block.mine_percent, block.others_percent, block.text, block.description]
        for block in gpus.blocks
    }
    if not gpus.is_whole:
        blocks["all"] = [gpus.mine_percent, gpus.others_percent, "", ""]
    return json.dumps(
        {
            "resources": {
                "group": group_id,
                "free": fgpu_text(gpus.free_milli),
                "mine": gpus.mine_text,
                "bars": {
                    bar.mine.name: [[each.used, each.most, each.text] for each in (bar.mine, bar.here, bar.everywhere)]
                    for bar in bars
                },
                "blocks": blocks,
            }
        }
    )
