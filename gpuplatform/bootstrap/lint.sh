#!/bin/sh
# lint.sh: every check that needs no database and no container. All run; the exit status is 1 if any failed.
cd "$(dirname "$0")/../.." || exit 1
python=.venv/bin/python
step="sh gpuplatform/bootstrap/step.sh"
failed=0

# Only sessions/models/ may write a session's status: move_to, and the scheduler's one statement. Hosts (resources) and
# errors of the client have a status of their own; migrations compare it in triggers.
status_has_one_writer() {
    ! git grep -nE '\.status = ' -- '*.py' ':!sessions/models/**' \
        ':!**/tests/**' ':!**/migrations/**' ':!resources/**' ':!client/**'
}

# What a public deployment would run with; nothing is connected to.
deployed() {
    env SECRET_KEY="$($python -c 'import secrets; print(secrets.token_urlsafe(50))')" \
        DEBUG=false COMPUTE_HTTPS=true ALLOWED_HOSTS=gpu.example.org COMPUTE_PUBLIC_URL=https://gpu.example.org "$@"
}

$step "Types" $python -m mypy . & # takes longer than all others together
types=$!
$step "Format" $python -m ruff format --check . || failed=1
$step "Style" $python -m ruff check . || failed=1
$step "JavaScript" sh gpuplatform/bootstrap/with_node.sh node_modules/eslint/bin/eslint.js --max-warnings 0 \
    eslint.config.js static/js tests/js || failed=1
$step "Layers" .venv/bin/lint-imports || failed=1
$step "Class names are unique" $python gpuplatform/bootstrap/checks/lint_class_names.py || failed=1
deployed $step "Deployment settings" $python manage.py check --deploy --fail-level WARNING || failed=1
deployed $step "Migrations are complete" $python manage.py makemigrations --check --dry-run || failed=1
echo "==> One writer of status"
status_has_one_writer || failed=1
wait "$types" || failed=1
exit $failed
