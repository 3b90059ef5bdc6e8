# Login shells, such as those of tmux, start from Debian's own PATH: put Python and the user's tools first again.
PATH="$HOME/.local/bin:/opt/python/bin:$PATH"
export PATH
