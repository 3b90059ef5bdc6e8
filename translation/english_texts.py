"""The English texts that are stored in the database, or that modules without Django compose.

A placeholder stands for what the writer fills in. `translation.composed_sentences` finds the whole sentences in the
modules; here stand those that are composed of parts, and those that are too short to be found.
"""

import json
from pathlib import Path
from typing import Final

from django.utils.translation import gettext_noop as _

SENTENCES: Final = Path(__file__).with_name("composed_sentences.json")  # written by `make messages`
_TEXTS: Final = (
    # accounts/signing_in/views.py
    _("The key %(title)s opens your sessions now."),
    _("The key %(title)s is deleted. Its SSH connections are being closed."),
    # arrays/services.py
    _("Cancelled by %(actor)s."),
    _("Held by %(actor)s."),
    # amounts and lists
    _("%(count)s CPU core"),
    _("%(count)s CPU cores"),
    _("%(count)s core"),
    _("%(count)s cores"),
    _("%(days)s d %(hours)s h %(minutes)s min"),
    _("%(days)s d %(hours)s h"),
    _("%(days)s d %(minutes)s min"),
    _("%(hours)s h %(minutes)s min"),
    _("%(count)s minute"),
    _("%(count)s minutes"),
    _("%(count)s hour"),
    _("%(count)s hours"),
    _("%(count)s GPU"),
    _("%(count)s GPUs"),
    _("1 whole GPU"),
    _("%(count)s whole GPUs"),
    _("an hour"),
    _("a day"),
    _("a week"),
    _("30 days"),
    _("%(seconds)s s"),
    # states of apps, images and conversions
    _("starting"),
    _("ready"),
    _("failed"),
    _("closed"),
    _("queued"),
    _("building"),
    _("waiting for the host"),
    _("pulling"),
    _("done"),
    _("saving what changed"),
    _("pushing to the registry"),
    # deployments
    _("%(count)s replica"),
    _("%(count)s replicas"),
    _("Created with %(replicas)s."),
    _("Rule added: %(rule)s."),
    _("Rule changed: %(rule)s."),
    _("Rule paused: %(rule)s."),
    _("Rule removed: %(rule)s."),
    _("%(metric)s, %(target)s a replica"),
    _("requests under way and waiting"),
    _("requests per second"),
    _("use of its share of the GPU, in percent, %(target)s a replica"),
    _("result of a Prometheus query"),
    _("Added revision %(number)s."),
    _("Activated revision %(number)s."),
    _("Activated revision %(number)s, in place of %(other)s."),
    _("Changed: %(settings)s."),
    _("Restarted."),
    _("Ended."),
    _("Exit code %(code)s."),
    # endpoints/routing/ports.py
    _("Port %(port)s is taken; it has port %(chosen)s instead."),
    _("Port %(port)s is not one of %(pool)s; it has port %(chosen)s instead."),
    # endpoints/services.py
    _("Opened."),
    _("Made public"),
    _("Closed"),
    _("Shared until %(until)s UTC: %(link)s"),
    _("Share link revoked: %(link)s"),
    _("Share link over: %(link)s"),
    # hostworker/app_processes/starter.py
    _("%(title)s has ended."),
    _("%(title)s has ended with exit code %(code)s."),
    _("%(title)s has ended, perhaps for want of memory."),
    _("%(title)s has ended with exit code %(code)s, perhaps for want of memory."),
    _("%(title)s ended before it answered."),
    _("%(title)s ended with exit code %(code)s before it answered."),
    _("What listens there has not answered on port %(port)s for %(seconds)s s."),
    _("%(title)s runs, but has not answered on port %(port)s for %(seconds)s s."),
    _("%(title)s ended, perhaps for want of memory before it answered."),
    _("%(title)s ended with exit code %(code)s, perhaps for want of memory before it answered."),
    # hostworker/privileged/storage_roots/idmapped_mounts.py
    _(
        "Files in %(root)s belong to user id %(uid)s, and sessions cannot have them as their own user's: its file "
        "system, or Linux %(release)s, has no id-mapped mounts."
    ),
    _("%(root)s cannot be mounted for sessions, with other ids: %(error)s."),
    _("No user namespace can be made on this host: %(error)s."),
    _("Ids cannot be mapped on this host: %(error)s."),
    # images/catalog.toml: hints on apps
    _("One notebook at a time"),
    _("Notebooks and files side by side"),
    _("Editor and debugger; best with 1 GiB or more"),
    _("Reads what is logged below ~/logs"),
    _("Runs of scripts that were started at home"),
    # gpuplatform/serving/request_bodies.py
    _("The body of the request is too large."),
    # folders/files/downloads/archive.py
    _("An archive can have %(most)s files and directories. Download fewer, or use SFTP."),
    _("The paths of so many files and directories are too long for one archive. Download fewer, or use SFTP."),
    _("Files were added while the archive was sent."),
    _("The path is too long for an archive."),
    # folders/pages
    _("%(count)s entry moved to the trash."),
    _("%(count)s entries moved to the trash."),
    _("%(count)s entry deleted for ever."),
    _("%(count)s entries deleted for ever."),
    _("%(count)s entry restored."),
    _("%(count)s entries restored."),
    _("%(count)s entry moved to %(place)s."),
    _("%(count)s entries moved to %(place)s."),
    _("1 entry is deleted for ever."),
    _("%(count)s entries are deleted for ever."),
    _("Renamed %(old)s to %(new)s."),
    _("Saved %(name)s."),
    # folders/pages/entry_views.py
    _("New text file"),
    _("Empty the trash"),
    # folders/quotas/rules.py
    _("The owner's quota on %(root)s is %(limit)s, of which %(left)s are left. Delete files, and empty the trash."),
    _(
        "The owner's quota on %(root)s is %(max_files)s files and directories, of which %(left_files)s are left. Delete files, and empty the trash."
    ),
    _("There is no room for %(amount)s."),
    # folders/sharing/folders.py
    _("You have a folder called %(name)s already."),
    _("The project %(project)s has a folder called %(name)s already."),
    _("The project %(project)s has no policy, which would give it storage."),
    # hostaccess/services.py
    _("Its credentials were revoked"),
    # hostworker/storage/disk_watch.py
    _(
        "It has written %(size)s outside of data folders, and is ended beyond %(limit)s. Delete files, or move them to a data folder."
    ),
    _("It has written %(size)s outside of data folders; its policy allows %(limit)s."),
    # hostworker/containers/folder_mounts.py
    _("Not started, as folders that it mounts are missing."),
    # hostworker/containers/runner.py
    _("%(image)s is on the host now."),
    _("%(image)s is on the host now (%(size)s)."),
    # hostworker/runtime/docker/images/saved.py
    _("The container engine could not save the container: %(error)s"),
    # hostworker/runtime/pull.py
    _("Pulling %(image)s: %(loaded)s, %(unpacked)s layers unpacked"),
    _("Pulling %(image)s: %(loaded)s, %(rate)s/s, %(unpacked)s layers unpacked"),
    _("Pulling %(image)s: %(loaded)s, %(rate)s/s, about %(left)s left, %(unpacked)s layers unpacked"),
    _("Pulling %(image)s: %(unpacked)s layers unpacked"),
    _("%(size)s loaded"),
    _("%(loaded)s of at least %(total)s"),
    _("%(done)s of %(all)s"),
    _("Pulling %(image)s"),
    # resources/gpus/shares.py
    _("never more GPU time than the share"),
    # resources/gpus/tiers.py
    _("the whole device, shared with nobody"),
    _("a partition cut by the hardware (MIG)"),
    _("memory limited by the driver, GPU time by the platform"),
    _("memory limited by the platform, GPU time by NVIDIA's MPS"),
    _("memory and GPU time limited by the platform, watched by the host"),
    _("this host lends whole GPUs only"),
    # scheduler/core/waiting/explanation.py
    _("No ready host of this session's resource group has the storage of its folders now."),
    _("Only hosts with %(phrases)s count."),
    _("a CPU of architecture %(name)s"),
    _("the storage %(names)s"),
    _("the image %(name)s"),
    _("networks for clusters"),
    _("the files of this parked session, which are on host %(name)s"),
    _("Your policy allows %(allowed)s at once; with the %(asked)s of this session you would hold more."),
    _("Your project allows %(allowed)s at once; with the %(asked)s of this session its members would hold more."),
    _("Your policy allows no running sessions."),
    _("Your project allows no running sessions."),
    _("Your policy allows 1 running session at once, and it is in use."),
    _("Your project allows 1 running session at once, and it is in use."),
    _("Your policy allows %(limit)s running sessions at once, and all are in use."),
    _("Your project allows %(limit)s running sessions at once, and all are in use."),
    _(
        "Your policy allows %(limit)s running sessions at once; with the %(members)s members of this cluster you would hold more."
    ),
    _(
        "Your project allows %(limit)s running sessions at once; with the %(members)s members of this cluster its members would hold more."
    ),
    _("by then enough of the sessions that count against the same limit reach their time limit"),
    _("the sessions in front of it start by then"),
    _("a host that was asked for comes by then"),
    _("its %(members)s members have room when 1 session reaches its time limit"),
    _("its %(members)s members have room when %(count)s sessions reach their time limit"),
    _("%(amount)s falls free when 1 session reaches its time limit"),
    _("%(amount)s fall free when 1 session reaches its time limit"),
    _("%(amount)s falls free when %(count)s sessions reach their time limit"),
    _("%(amount)s fall free when %(count)s sessions reach their time limit"),
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
    _("Waiting for %(amount)s on one host, as %(parts)s: the most that one host can give this way is %(most)s."),
    # scheduler/snapshot/claims.py
    _("by then the preemptible sessions in its way have ended"),
    # short details of the timeline
    _("Running."),
    _("Runs %(span)s longer."),
    _("Placed on %(host)s."),
    # notifications/delivery/ends.py
    _("Your image %(name)s:%(tag)s is ready"),
    # sessions/conversion/services.py
    _("%(name)s is being saved as %(image)s."),
    # sessions/drains/services.py
    _("Its host is taken out of service: it ends at %(time)s UTC at the latest."),
    _("Its host is taken out of service (%(reason)s): it ends at %(time)s UTC at the latest."),
    # sessions/launching/group_choice.py
    _("In %(group)s: %(problem)s"),
    _("With %(fgpu)s fGPU a session gets at most %(size)s on one %(device)s of this group."),
    _("With %(fgpu)s fGPU a session gets at most %(size)s on one %(device)s of this group; %(image)s needs %(least)s."),
    # sessions/requeueing/preemption.py
    _("Another session needs what it holds: it ends at %(time)s UTC, as it is preemptible."),
    _("Ended for another session for the %(count)sth time, as it is preemptible: it is not tried again."),
    # sessions/following/logs.py
    _("The session's last lines are stored when it ends."),
    # sessions/limits/policy_checks.py
    _("Your policy allows at most %(count)s sessions per launch."),
    _("The project %(project)s allows at most %(count)s sessions per launch."),
    _("Your policy allows at most %(most)s tasks in an array; this makes %(tasks)s."),
    _("The project %(project)s allows at most %(most)s tasks in an array; this makes %(tasks)s."),
    _("Your policy allows no sessions."),
    _("The project %(project)s allows no sessions."),
    _("The project %(project)s allows at most %(name)s."),
    _("Your policy ends sessions after %(most)s."),
    _("The project %(project)s ends sessions after %(most)s."),
    _("Your policy allows %(most)s waiting sessions, and %(waiting)s wait already"),
    _("The project %(project)s allows %(most)s waiting sessions, and %(waiting)s wait already"),
    # sessions/resizing/services.py, hostworker/enforcement/folders.py, hostworker/runtime/docker/resize.py
    _("From %(before)s to %(after)s."),
    _("Your policy allows at most %(most)s in all, of which %(held)s are held."),
    _("The project %(project)s allows at most %(most)s in all, of which %(held)s are held."),
    _("The container engine refused it: %(problem)s"),
    # sessions/conversion/private_images.py
    _("%(image)s is in use by %(users)s; end it first."),
    _("%(image)s is in use by %(users)s; end them first."),
    # webhooks/delivery/sender.py
    _("No connection: %(error)s"),
    _("No HTTP response: %(error)s"),
)
ENGLISH_TEXTS: Final = (*_TEXTS, *json.loads(SENTENCES.read_text()))
