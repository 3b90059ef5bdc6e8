"""English texts of data folders, their files, quotas and storage roots."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # folders/sharing/access.py
    _("Only the owner of a folder, and those with whom it is shared, may see its files."),
    _("The folder is in the trash; restore it to change what is in it."),
    _("The folder is shared with you read-only."),
    _("Only the owner of the folder may do this."),
    # folders/files/downloads/archive.py
    _("An archive can have %(most)s files and directories. Download fewer, or use SFTP."),
    _("The paths of so many files and directories are too long for one archive. Download fewer, or use SFTP."),
    _("Files were added while the archive was sent."),
    _("The path is too long for an archive."),
    # folders/files/descriptors.py
    _("This is a directory: %(path)s"),
    _("This is a symbolic link, which is not followed here: %(path)s"),
    _("This is no regular file but a device, a pipe or a socket: %(path)s"),
    # folders/files/folder_files.py
    _("Only files up to %(most)s MiB can be edited: %(path)s"),
    _("This is not text in UTF-8: %(path)s"),
    _("This is not text: %(path)s"),
    _("The file is not there any more: %(path)s"),
    _("The file was changed since you opened it: %(path)s"),
    _("This is not a file: %(path)s"),
    _("The text has characters that UTF-8 cannot carry."),
    _("Only files up to %(most)s MiB can be edited."),
    # folders/files/layout.py
    _(
        "Data folders are off: the platform runs as user id %(user_id)s. Files can get the owner that they have in sessions only if it runs as root or as user id %(needed_id)s."
    ),
    # folders/files/partial.py
    _("Another request is uploading this file."),
    _("There are too many files of this name: %(path)s"),
    # folders/files/paths.py
    _("The path has characters that no file name can have."),
    _("The path is longer than %(most)s bytes."),
    _("The path has a NUL character, which no file name can have."),
    _("The path begins with a slash; paths begin in the folder."),
    _('The path has a part that is empty, "." or "..".'),
    _("A name in the path is longer than %(most)s bytes."),
    _("A new name cannot have control characters or line breaks."),
    _("The path is empty: name something in the folder."),
    # folders/files/roots.py
    _("%(path)s is not empty: it has %(found)s in it."),
    _("%(path)s cannot be read: %(value)s."),
    _("%(path)s has no marker file %(marker)s: its file system may not be mounted."),
    _("%(path)s is another storage root: the key in its marker file %(marker)s differs."),
    _("%(path)s is mounted read-only."),
    _("%(path)s cannot be written to by the platform's user (id %(user_id)s)."),
    _("The directory %(path)s does not exist."),
    _("%(path)s cannot be opened: %(value)s."),
    _("%(path)s does not answer: the server of its file system may be away."),
    _("%(path)s could not be examined: %(error)s."),
    # folders/files/trash.py
    _("This is not in the trash any more."),
    # folders/mount_paths.py
    _("%(path)s cannot be used: write letters, digits and . _ + @ - between single slashes, no . or .. alone."),
    _("%(path)s itself is reserved: choose a path below it."),
    _("%(path)s is a path of the system: choose one below %(place)s or %(other)s."),
    _("%(path)s is reserved for the platform: choose another path."),
    # folders/names.py
    _("Give the folder a name."),
    _("A name has at most %(most)s characters."),
    _("Use letters, digits, - _ and . only; begin with a letter, a digit or one dot, and do not end with a dot."),
    _("%(name)s is reserved: sessions have a file or directory of this name in their home directory."),
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
    _("Made the directory %(name)s."),
    _("Made the file %(name)s."),
    _("New text file"),
    _("Empty the trash"),
    _("It needs a name."),
    _("A name has no slash; to put it elsewhere, move it."),
    # folders/pages/forms.py
    _("A folder needs a name."),
    _("This storage is not offered any more. Choose another one."),
    _("Whom shall it be shared with?"),
    _("This is not an e-mail address."),
    _("Nobody signs in here with this address. Check it, or ask them for theirs."),
    # folders/pages/list_views.py
    _("You have a folder of this name already."),
    _("%(folder)s is not shared with you any more."),
    _("%(folder)s is in the trash now; it can be restored there."),
    _("%(folder)s is restored."),
    _("%(folder)s is deleted."),
    # folders/pages/outcomes.py
    _("%(problems)s more have failed."),
    _("Nothing was chosen."),
    # folders/pages/text_views.py
    _("The text is not UTF-8."),
    # folders/quotas/rules.py
    _("The owner's quota on %(root)s is %(limit)s, of which %(left)s are left. Delete files, and empty the trash."),
    _(
        "The owner's quota on %(root)s is %(max_files)s files and directories, of which %(left_files)s are left. Delete files, and empty the trash."
    ),
    _(
        "Your folders on %(root)s take more than you may store there. Nothing can be added, and sessions may find them read-only, until you have deleted enough and emptied the trash."
    ),
    _(
        "%(path)s is read-only now: the owner of the folder %(folder)s uses more storage on %(root)s than allowed. Delete files on the page Data folders or over SFTP, and empty the trash; then it becomes writable again."
    ),
    _("There is no room for %(amount)s."),
    # folders/storage/roots.py
    _("No host has the storage root %(root)s at present. Here: %(problem)s"),
    _("Sessions on %(names)s can use folders of the storage root %(root)s. Here: %(problem)s"),
    _("Storage root %(root)s is on no host: %(problem)s"),
    _("Storage root %(root)s is missing on %(names)s: %(problem)s"),
    # hostworker/runtime/user_namespaces.py
    _("The container engine maps users (userns-remap), and how cannot be read on this machine."),
    _(
        "The container engine maps user %(uid)s of sessions to %(found)s (userns-remap), so that data folders would be another user's."
    ),
    # folders/sharing/folders.py
    _("No storage takes new folders at present; ask an administrator."),
    _("Only a folder that is in the trash can be deleted for ever."),
    _("The folder is not being deleted."),
    _("This is the owner of the folder."),
    _("This account is disabled."),
    _("A folder can be shared with at most %(most)s users."),
    _("The folder was deleted."),
    _("The folder is in the trash; restore it first."),
    _("Your policy allows %(most)s data folders, and you have as many."),
    _("You have a folder called %(name)s already."),
    _("The project %(project)s has a folder called %(name)s already."),
    _("The project's policy allows %(most)s data folders, and it has as many."),
    _("The project %(project)s has no policy, which would give it storage."),
    _("Sessions use the folder: %(users)s%(more)s. End them first."),
    # folders/storage/paths.py
    _("Data folders cannot be kept in %(path)s: set COMPUTE_STORAGE_DIR to a path without spaces."),
    # folders/transfers/incoming.py
    _("Nothing was sent for %(seconds)s seconds."),
    _("The checksum does not match the bytes received."),
    _("The body is longer than the file was said to be."),
    # folders/uploads/services.py
    _("This is not a directory: %(parts)s"),
    _("There is already a file or directory of this name: %(path)s"),
    _("This is a directory, which a file cannot replace: %(path)s"),
    _("You have %(count)s uploads that are not finished. Finish or end some of them first."),
    _("The upload has ended."),
    _("The quota of the folder's owner is used up. Delete files, and empty the trash."),
    _("The upload was ended."),
)
