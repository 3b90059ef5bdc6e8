"""Base of the views by which superadmins administer rows: list, show, make, change, delete.

A row is validated and saved by the same form as in the administration, and every act is in the audit log.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Model, ProtectedError, Q, QuerySet
from django.forms import BaseModelForm, model_to_dict
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.api import ForSuperadmins, user_of
from accounts.models import User
from resources.kick import kick_scheduler
from restapi.views import ApiViewSet

Row = TypeVar("Row", bound=Model)

IN_USE = OpenApiResponse(description="Something that stays refers to it; the detail says what")


class RowInUseError(APIException):
    """The row cannot be deleted or changed, because others refer to it."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "in_use"


class NotPossibleError(APIException):
    """The row is not in the state for this act."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "not_possible"


class SearchQuery(serializers.Serializer[Any]):
    """Query parameters of a list that can be searched."""

    search = serializers.CharField(max_length=200, required=False, help_text="Part of a name, and the like")


class ReadRecords(ForSuperadmins, ListModelMixin, RetrieveModelMixin, ApiViewSet[Row]):
    """Lists rows, by search and filters, and shows one of them."""

    lookup_value_regex = "[0-9]{1,18}"
    query_serializers: ClassVar[Mapping[str, type[serializers.Serializer[Any]]]] = {"list": SearchQuery}
    search_fields: ClassVar[tuple[str, ...]] = ("name",)
    filters: ClassVar[Mapping[str, str]] = {}  # {parameter: lookup}

    def filter_queryset(self, queryset: Any) -> Any:
        """Return the rows that match the query string."""
        if self.action != "list":
            return queryset
        if "search" in self.query:
            found = Q()
            for field in self.search_fields:
                found |= Q((f"{field}__icontains", self.query["search"]))
            queryset = queryset.filter(found)
        return queryset.filter(**{look: self.query[name] for name, look in self.filters.items() if name in self.query})

    def shown(self, row: Row, code: int = status.HTTP_200_OK) -> Response:
        """Return the response with the row as it is now."""
        return Response(self.get_serializer(self.get_queryset().get(pk=row.pk)).data, status=code)


class SaveRecords(ReadRecords[Row]):
    """Saves rows by a form."""

    form_class: ClassVar[type[BaseModelForm[Any]]]
    is_scheduled: ClassVar[bool] = False  # whether a scheduling pass follows on each change

    def save(self, request: Request, pk: Any = None) -> tuple[Row, BaseModelForm[Any]]:
        """Make a row, or change that with the primary key `pk`; once more where the database refuses it.

        It does so if another row was written after the validation: the second one says that at its field.
        Raises ValidationError and RowInUseError.
        """
        try:
            return self._save(request, pk)
        except IntegrityError:
            try:
                return self._save(request, pk)
            except IntegrityError as error:
                raise RowInUseError(_("The database refuses this change at present. Try again.")) from error

    @transaction.atomic
    def _save(self, request: Request, pk: Any) -> tuple[Row, BaseModelForm[Any]]:
        instance = None if pk is None else self._locked(pk)
        body = self.get_serializer(instance, data=request.data, partial=instance is not None)
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        self.check(instance, values)
        targets: tuple[Model, ...] = () if instance is None else (instance, *self.related(instance, values))
        action = "added" if instance is None else "changed"
        with audit.act(self.actor(), action, *targets) as made:
            row, form = self._saved(instance, values, body)
            made += [row] if instance is None else []
        if self.is_scheduled:
            kick_scheduler()
        return row, form

    def _saved(self, instance: Row | None, values: dict[str, Any], body: Any) -> tuple[Row, BaseModelForm[Any]]:
        form = self.form_class(data=self._form_data(instance, values), instance=instance)
        if not form.is_valid():
            names = {source: name for name, source in body.writable().items()}
            raise ValidationError({names.get(field, field): [*map(str, found)] for field, found in form.errors.items()})
        row: Row = form.save()
        self.finish(row, values)
        return row, form

    def actor(self) -> User | None:
        """Return who saves, for the audit log; None for a command."""
        return user_of(self.request)

    def defaults(self) -> dict[str, Any]:
        """Return what a new row has unless the request says otherwise, beside the model's own defaults."""
        return {}

    def check(self, instance: Row | None, values: Mapping[str, Any]) -> None:
        """Raise ValidationError for what the form does not check."""

    def finish(self, row: Row, values: Mapping[str, Any]) -> None:
        """Save what is not in the form, in the transaction of the form."""

    def related(self, instance: Row, values: Mapping[str, Any]) -> Iterable[Model]:
        """Return the other rows that a change may change; they are in the audit log, too."""
        return ()

    def _locked(self, pk: Any) -> Row:
        rows: QuerySet[Row] = self.get_queryset().model._default_manager.all()
        get_object_or_404(self.get_queryset(), pk=pk)
        return get_object_or_404(rows.select_for_update(), pk=pk)

    def _form_data(self, instance: Row | None, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a browser would send: the values of now, or the defaults, with those of the request."""
        if instance is None:
            new = self.get_queryset().model()
            many = [field.name for field in new._meta.many_to_many]
            stored = {**model_to_dict(new, exclude=many), **self.defaults()}
        else:
            stored = model_to_dict(instance)
        data = {**stored, **values}
        form: Any = self.form_class
        return {name: _raw(data.get(name)) for name in form.base_fields}


def _raw(value: Any) -> Any:
    if isinstance(value, Model):
        return value.pk
    return [_raw(each) for each in value] if isinstance(value, list | QuerySet) else value


class AddRecords(SaveRecords[Row]):
    """Makes rows."""

    def create(self, request: Request) -> Response:
        """Make one."""
        return self.shown(self.save(request)[0], status.HTTP_201_CREATED)


class ChangeRecords(SaveRecords[Row]):
    """Changes rows."""

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the fields of the body; the others stay as they are."""
        return self.shown(self.save(request, pk)[0])


class DeleteRecords(ReadRecords[Row]):
    """Deletes rows."""

    @extend_schema(responses={204: None, 409: IN_USE})
    def destroy(self, request: Request, **kwargs: Any) -> Response:
        """Delete it, unless something that stays refers to it."""
        try:
            with transaction.atomic():
                row = self.get_object()
                with audit.act(user_of(request), "deleted", row):
                    self.remove(row)
                kick_scheduler()
        except ProtectedError as error:
            names = ", ".join(sorted({str(each._meta.verbose_name_plural) for each in error.protected_objects}))
            raise RowInUseError(_("It cannot be deleted: %(what)s refer to it.") % {"what": names}) from error
        return Response(status=status.HTTP_204_NO_CONTENT)

    def remove(self, row: Row) -> None:
        """Delete the row. Raises ProtectedError."""
        row.delete()


class RecordViewSet(AddRecords[Row], ChangeRecords[Row], DeleteRecords[Row]):
    """Lists, shows, makes, changes and deletes rows."""
