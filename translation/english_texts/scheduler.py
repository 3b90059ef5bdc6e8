"""English texts of the scheduler: why a session waits, and until when."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # scheduler/core/waiting/explanation.py
    _("No host of this session's resource group is ready."),
    _("Every ready host of this session's resource group is closed for new sessions at present."),
    _(
        "What it needs is free, but kept for a session that waits in front of it: there it could start only if it were sure to end in time."
    ),
    _("What it needs is free, but kept for a session that has waited in front of it for too long."),
    _("No ready host of this session's resource group has the storage of its folders now: %(names)s."),
    _("No ready host of this session's resource group has the storage of its folders now."),
    _("No ready host of this session's resource group has %(phrases)s."),
    _("No ready host of this session's resource group suits its image."),
    _("Only hosts with %(phrases)s count."),
    _("a CPU of architecture %(name)s"),
    _("%(amount)s or more"),
    _("GPUs of the model %(name)s"),
    _("GPUs of %(size)s or more"),
    _("the storage %(names)s"),
    _("the image %(name)s"),
    _("the files of this parked session, which are on host %(name)s"),
    _("Your policy allows %(allowed)s at once; with the %(asked)s of this session you would hold more."),
    _("Your project allows %(allowed)s at once; with the %(asked)s of this session its members would hold more."),
    _("Your policy allows no running sessions."),
    _("Your project allows no running sessions."),
    _("Your policy allows 1 running session at once, and it is in use."),
    _("Your project allows 1 running session at once, and it is in use."),
    _("Your policy allows %(limit)s running sessions at once, and all are in use."),
    _("Your project allows %(limit)s running sessions at once, and all are in use."),
    _("by then enough of the sessions that count against the same limit reach their time limit"),
    _("the sessions in front of it start by then"),
    _("%(amount)s falls free when 1 session reaches its time limit"),
    _("%(amount)s fall free when 1 session reaches its time limit"),
    _("%(amount)s falls free when %(count)s sessions reach their time limit"),
    _("%(amount)s fall free when %(count)s sessions reach their time limit"),
    _("Waiting for %(amount)s on one host: each is free somewhere, but not all on the same host."),
    _("Waiting for %(amount)s on one host: at most %(free)s is free."),
    _("Waiting for %(amount)s on one host: at most %(free)s are free."),
    _("Waiting for %(amount)s on one host: none is free."),
    _("Waiting for %(amount)s on one host: at most %(free)s is free beside the GPU asked for."),
    _("Waiting for %(amount)s on one host: at most %(free)s are free beside the GPU asked for."),
    _("Waiting for %(amount)s on one host: none is free beside the GPU asked for."),
    _("Waiting for %(amount)s: no ready host of this session's resource group has a GPU."),
    _(
        "Waiting for %(amount)s: no ready host of this session's resource group can divide a GPU; whole ones can be had."
    ),
    _("Waiting for %(amount)s on one GPU: the most that is free on a single GPU is %(most)s."),
    _("%(amount)s fGPU of another"),
    _("Waiting for %(amount)s on one host, as %(parts)s: the most that one host can give this way is %(most)s."),
    # scheduler/advice/estimate.py
    _("It waits until the sessions that it depends on have succeeded."),
    _("It waits for its start time."),
    # scheduler/snapshot/claims.py
    _("Preemptible sessions end for it after their warning."),
    _("by then the preemptible sessions in its way have ended"),
)
