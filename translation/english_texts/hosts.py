"""English texts of host workers, which prepare, watch and end containers."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # hostaccess/services.py
    _("Its credentials were revoked"),
    # hostworker/conversion/layer.py
    _("More than %(most)s files were changed."),
    _("%(piece_path)s changed while it was read; stop what writes there and try again."),
    # hostworker/storage/disk_watch.py
    _(
        "It has written %(size)s outside of data folders, and is ended beyond %(limit)s. Delete files, or move them to a data folder."
    ),
    _("It has written %(size)s outside of data folders; its policy allows %(limit)s."),
    _(
        "The disk of host %(host)s has only %(free)s left, and of its sessions this one had written most: %(size)s outside of data folders."
    ),
    _("It has made %(used)s files outside of data folders; its policy allows %(limit)s."),
    _(
        "It has made %(used)s files outside of data folders, and is ended beyond %(limit)s. Delete files, or move them to a data folder."
    ),
    _(
        "The disk of host %(host)s has room for only %(free)s more files, and of its sessions this one had made most: %(count)s."
    ),
    # hostworker/enforcement
    _("Its environment variables could not be written: %(problem)s"),
    _("%(name)s is not a variable's name"),
    _("GPU time of this host's sessions is not arbitrated: %(problem)s"),
    _("%(path)s is not a folder of the host worker's own"),
    # hostworker/enforcement/enforcer.py
    _(
        "The image does not run under the hook that divides a GPU: it must be built on glibc. Ask for whole GPUs, or use another image."
    ),
    _("Its share of the GPU could not be prepared: %(error)s"),
    _("Its group shares GPUs through MPS, and its host names no MPS folder."),
    _("Its share of the GPU could not be verified: %(error)s"),
    _("Its host cannot divide a GPU: %(value)s"),
    # hostworker/containers/folder_mounts.py
    _("Not started, as folders that it mounts are missing."),
    # hostworker/images/host_images.py
    _("Image %(reference)s is not on this host, and is built there, not pulled."),
    _("Image %(reference)s could not be pulled: %(cause)s."),
    _("Image %(reference)s could not be pulled: the password of its registry has to be entered again."),
    # hostworker/images/image_maker.py
    _("This host's runtime makes no images."),
    _("The report could not be made; the log of the session's host says why."),
    _("The disk of the session's host is too full to save it."),
    _("The host worker ended before the image was complete. Start it again."),
    _("The host worker was stopped before the image was complete. Start it again."),
    _("Adding %(size)s to the host's images"),
    _("The session's image has %(layers)s layers, and no more fit. Build it anew."),
    _("Pushing to the registry"),
    # hostworker/agent/kernel_watch.py
    _(
        "The sessions of its host hold %(total)s of the %(limit)s %(kind)s that the kernel allows all of them together, and this one holds most: %(held)s."
    ),
    # hostworker/agent/output_watch.py
    _(
        "It writes to its standard output faster than its host copies for a session, so that its programs wait as they write. Write to a file, or write less."
    ),
    # hostworker/containers/runner.py
    _("The session needed more memory than it had and was ended by the kernel."),
    _("Its main process ended."),
    _("Its main process ended with exit code %(exit_code)s."),
    _("Its container was removed outside the platform."),
    _("Preparing the container."),
    _("%(image)s is on the host now."),
    _("%(image)s is on the host now (%(size)s MB)."),
    _("Out of memory: a process was killed, because the session had used its %(memory)s."),
    # hostworker/runtime/docker/runtime.py
    _("Image %(image)s is not on the host."),
    _("The name %(name)s is taken by a container that is not the platform's."),
    _("The name %(name)s stays reserved although no container has it."),
    _("Its host cannot divide a GPU: no enforcement is set up."),
    _("The container is not there."),
    _("The container has already ended."),
    # hostworker/runtime/docker/exec.py
    _("A program in the container did not end in time."),
    # hostworker/runtime/docker/folders.py
    _("A folder cannot be changed in the running container: %(error)s"),
    # hostworker/runtime/engine_requests.py
    _("The container engine does not answer: %(error)s"),
    # hostworker/runtime/docker/images/saved.py
    _("The container engine could not save the container: %(error)s"),
    _("The session's container is not on its host any more."),
    _("The session's container still runs, or is not the platform's."),
    # hostworker/runtime/docker/images/snapshots.py
    _("The session's container is not there."),
    _("The session's container does not run."),
    _("The session's container is gone."),
    _("%(path)s is gone."),
    _("The container engine does not give %(path)s: status %(status_code)s."),
    _("The session's image is no longer on its host."),
    _("The image is not on its host."),
    _("The registry broke off while the image was pushed."),
    _("Pushing to the registry: %(done)s of %(size)s MB"),
    _("The container engine refused: %(event)s"),
    # hostworker/runtime/pull.py
    _("Pulling %(image)s: %(loaded)s, %(unpacked)s layers unpacked"),
    _("Pulling %(image)s: %(loaded)s, %(rate)s MB/s, %(unpacked)s layers unpacked"),
    _("Pulling %(image)s: %(loaded)s, %(rate)s MB/s, about %(left)s left, %(unpacked)s layers unpacked"),
    _("Pulling %(image)s: %(unpacked)s layers unpacked"),
    _("%(size)s MB loaded"),
    _("%(loaded)s of %(total)s MB"),
    _("%(loaded)s of at least %(total)s MB"),
    _("%(done)s of %(all)s"),
    _("Pulling %(image)s"),
    _("Image %(reference)s could not be pulled: %(value)s"),
    _("Image %(reference)s could not be pulled within %(minutes)s."),
    # hostworker/storage/share_watch.py
    _("Its owner has withdrawn it."),
    _("The owner of this session is no longer a member of the project that it belongs to."),
    _("A folder that it mounts was withdrawn, and its host could not take it out of the session."),
    _("A folder that it mounts became read-only, and its programs went on writing to it."),
    # hostworker/storage/storage_quota.py
    _("%(mount_path)s is writable again."),
    # hostworker/gpus/violations.py
    _("A process of it used the GPU without the hook that limits it."),
    _("It used %(used)s of GPU memory; its share is %(share)s."),
    _("It took %(percent)s %% of the GPU's time; its share is %(share)s %%."),
    _("It holds %(used)s of GPU memory, of which its limits count %(charged)s."),
    _("For %(percent)s %% of the time it said that it used the GPU, without a turn from the arbiter."),
)
