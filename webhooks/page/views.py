"""Pages of the user's webhooks, of which messages are sent, and what came of them."""

import json

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from accounts.requests import UserRequest, signed_in_act, signed_in_form, signed_in_page
from sessions.errors import RejectedError
from webhooks import services
from webhooks.models import Webhook, WebhookDelivery
from webhooks.page.forms import WebhookForm

PAGE_SIZE = 25


@signed_in_form
@sensitive_variables("made")
def webhook_list(request: UserRequest) -> HttpResponse:
    """List the user's webhooks, or make one; the response to that is the only page that shows its secret."""
    form = WebhookForm(request.user, request.POST if request.method == "POST" else None)
    made = form.save() if form.is_bound and form.is_valid() else None
    context = {"form": WebhookForm(request.user) if made else form, "hooks": request.user.webhooks.all(), "made": made}
    return render(request, "webhooks/list.html", context, status=200 if made else _status(form))


@signed_in_form
def detail(request: UserRequest, webhook_id: int) -> HttpResponse:
    """Show a webhook and its messages, or change it."""
    webhook = _found(request, webhook_id)
    form = WebhookForm(request.user, request.POST if request.method == "POST" else None, webhook)
    if form.is_bound and form.is_valid() and form.save():
        messages.success(request, _("The webhook is saved."))
        return redirect("webhooks:detail", webhook.pk)
    return _detail(request, webhook, form)


@signed_in_act
@sensitive_variables("secret")
def rotate(request: UserRequest, webhook_id: int) -> HttpResponse:
    """Replace the secret; the response is the only page that shows the new one."""
    webhook = _found(request, webhook_id)
    try:
        secret = services.rotate_secret(webhook)
    except RejectedError as error:
        messages.error(request, str(error))
        return redirect("webhooks:list")
    return _detail(request, webhook, WebhookForm(request.user, None, webhook), secret)


@require_POST
@login_required
def delete(request: UserRequest, webhook_id: int) -> HttpResponse:
    """Delete a webhook with its messages."""
    webhook = _found(request, webhook_id)
    services.delete(webhook)
    messages.success(request, _("The webhook %(name)s is deleted.") % {"name": webhook})
    return redirect("webhooks:list")


@require_POST
@login_required
def send_test(request: UserRequest, webhook_id: int) -> HttpResponse:
    """Send a test message."""
    try:
        delivery = services.send_test(_found(request, webhook_id))
    except RejectedError as error:
        messages.error(request, str(error))
        return redirect("webhooks:detail", webhook_id)
    return redirect("webhooks:delivery", webhook_id, delivery.pk)


@signed_in_page
def delivery(request: UserRequest, webhook_id: int, delivery_id: int) -> HttpResponse:
    """Show a message and its attempts."""
    found = _delivery(request, webhook_id, delivery_id)
    body = json.dumps(json.loads(found.body), indent=2, ensure_ascii=False) if found.body else ""
    context = {"delivery": found, "webhook": found.webhook, "body": body, "log": found.log.all()}
    return render(request, "webhooks/delivery.html", context)


@require_POST
@login_required
def resend(request: UserRequest, webhook_id: int, delivery_id: int) -> HttpResponse:
    """Send a message again."""
    try:
        services.send_again(_delivery(request, webhook_id, delivery_id))
        messages.success(request, _("The message is sent again."))
    except RejectedError as error:
        messages.error(request, str(error))
    return redirect("webhooks:delivery", webhook_id, delivery_id)


def _detail(request: UserRequest, webhook: Webhook, form: WebhookForm, secret: str = "") -> HttpResponse:
    page = Paginator(webhook.deliveries.defer("body"), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"webhook": webhook, "form": form, "page": page, "secret": secret}
    return render(request, "webhooks/detail.html", context, status=_status(form))


def _found(request: UserRequest, webhook_id: int) -> Webhook:
    return get_object_or_404(request.user.webhooks.select_related("owner"), pk=webhook_id)


def _delivery(request: UserRequest, webhook_id: int, delivery_id: int) -> WebhookDelivery:
    mine = WebhookDelivery.objects.filter(webhook__owner=request.user, webhook_id=webhook_id)
    return get_object_or_404(mine.select_related("webhook"), pk=delivery_id)


def _status(form: WebhookForm) -> int:
    return 422 if form.is_bound else 200
