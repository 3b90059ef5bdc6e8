"""The methods that `Client` and `AsyncClient` share, one for each operation of the API."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from gpuplatform_client.http.api_requests import ApiOperation, ApiStream, ResultPage
from gpuplatform_client.operations import arrays as array_operations
from gpuplatform_client.operations import deployments as deployment_operations
from gpuplatform_client.operations import imports as import_operations
from gpuplatform_client.operations import platform as operations
from gpuplatform_client.operations import templates as template_operations

if TYPE_CHECKING:
    from gpuplatform_client.async_client import AsyncClient
    from gpuplatform_client.client import Client

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class OperationMethod(Generic[Arguments, Result]):
    """A method that carries an operation out and returns its result; that of an `AsyncClient` is awaited."""

    def __init__(self, operation: Callable[Arguments, ApiOperation[Result]]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: "Client", owner: Any) -> Callable[Arguments, Result]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: Any) -> Callable[Arguments, Awaitable[Result]]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        """Return the method of a client."""
        return _method(self._operation, client, "run")


class ItemsMethod(Generic[Arguments, Result]):
    """A method that yields the items of a list, page by page, or what the events of a stream carry."""

    def __init__(
        self,
        operation: Callable[Arguments, ApiOperation[ResultPage[Result]]] | Callable[Arguments, ApiStream[Result]],
        carry_out: str = "items",
    ) -> None:
        self._operation = operation
        self._carry_out = carry_out

    @overload
    def __get__(self, client: "Client", owner: Any) -> Callable[Arguments, Iterator[Result]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: Any) -> Callable[Arguments, AsyncGenerator[Result, None]]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        """Return the method of a client."""
        return _method(self._operation, client, self._carry_out)


class ApiMethods:
    """The API of a platform. Requests that do no harm twice are repeated for `retry_seconds`; see `errors`."""

    logout = OperationMethod(operations.revoke_token)
    account = OperationMethod(operations.account)
    ssh_server = OperationMethod(operations.ssh_server)
    images = ItemsMethod(operations.images)
    sessions = ItemsMethod(operations.sessions)
    session = OperationMethod(operations.session)
    launch = OperationMethod(operations.launch)
    estimate = OperationMethod(operations.estimate)
    run_spec = OperationMethod(operations.run_spec)
    session_spec = OperationMethod(operations.session_spec)
    deployment_spec = OperationMethod(operations.deployment_spec)
    terminate = OperationMethod(operations.terminate)
    terminate_many = OperationMethod(operations.terminate_many)
    park = OperationMethod(operations.park)
    resume = OperationMethod(operations.resume)
    requeue = OperationMethod(operations.requeue)
    extend = OperationMethod(operations.extend)
    snooze = OperationMethod(operations.snooze)
    rename = OperationMethod(operations.rename)
    convert = OperationMethod(operations.convert)
    conversions = ItemsMethod(operations.conversions)
    resize = OperationMethod(operations.resize)
    session_events = ItemsMethod(operations.session_events)
    logs = OperationMethod(operations.logs)
    usage = OperationMethod(operations.usage)
    apps = ItemsMethod(operations.apps)
    open_app = OperationMethod(operations.open_app)
    hosts = ItemsMethod(operations.hosts)
    limits = OperationMethod(operations.limits)
    usage_report = OperationMethod(operations.usage_report)
    folders = ItemsMethod(operations.folders)
    create_folder = OperationMethod(operations.create_folder)
    delete_folder = OperationMethod(operations.delete_folder)
    entries = ItemsMethod(operations.entries)
    projects = ItemsMethod(operations.projects)
    project_members = ItemsMethod(operations.project_members)
    add_project_member = OperationMethod(operations.add_project_member)
    change_project_member = OperationMethod(operations.change_project_member)
    remove_project_member = OperationMethod(operations.remove_project_member)
    invite_to_project = OperationMethod(operations.invite_to_project)
    arrays = ItemsMethod(array_operations.arrays)
    array = OperationMethod(array_operations.array)
    submit_array = OperationMethod(array_operations.submit_array)
    change_array = OperationMethod(array_operations.change_array)
    array_tasks = ItemsMethod(array_operations.array_tasks)
    array_task = OperationMethod(array_operations.array_task)
    array_task_logs = OperationMethod(array_operations.array_task_logs)
    cancel_array = OperationMethod(array_operations.cancel_array)
    retry_array = OperationMethod(array_operations.retry_array)
    hold_array = OperationMethod(array_operations.hold_array)
    release_array = OperationMethod(array_operations.release_array)
    deployments = ItemsMethod(deployment_operations.deployments)
    deployment = OperationMethod(deployment_operations.deployment)
    create_deployment = OperationMethod(deployment_operations.create_deployment)
    change_deployment = OperationMethod(deployment_operations.change_deployment)
    deployment_drafts = OperationMethod(deployment_operations.deployment_drafts)
    set_deployment_hosts = OperationMethod(deployment_operations.set_deployment_hosts)
    scale_deployment = OperationMethod(deployment_operations.scale_deployment)
    revisions = ItemsMethod(deployment_operations.revisions)
    create_revision = OperationMethod(deployment_operations.create_revision)
    activate_revision = OperationMethod(deployment_operations.activate_revision)
    roll_back = OperationMethod(deployment_operations.roll_back)
    deployment_placement = OperationMethod(deployment_operations.deployment_placement)
    revision_placement = OperationMethod(deployment_operations.revision_placement)
    change_placement = OperationMethod(deployment_operations.change_placement)
    promote = OperationMethod(deployment_operations.promote)
    restart_deployment = OperationMethod(deployment_operations.restart_deployment)
    end_deployment = OperationMethod(deployment_operations.end_deployment)
    replicas = ItemsMethod(deployment_operations.replicas)
    scaling = OperationMethod(deployment_operations.scaling)
    change_scaling = OperationMethod(deployment_operations.change_scaling)
    sleep_deployment = OperationMethod(deployment_operations.sleep_deployment)
    wake_deployment = OperationMethod(deployment_operations.wake_deployment)
    add_scaling_rule = OperationMethod(deployment_operations.add_scaling_rule)
    change_scaling_rule = OperationMethod(deployment_operations.change_scaling_rule)
    remove_scaling_rule = OperationMethod(deployment_operations.remove_scaling_rule)
    deployment_tokens = ItemsMethod(deployment_operations.deployment_tokens)
    create_deployment_token = OperationMethod(deployment_operations.create_deployment_token)
    deployment_logs = OperationMethod(deployment_operations.deployment_logs)
    follow_deployment_logs = ItemsMethod(deployment_operations.follow_deployment_logs, "follow")
    change_deployment_token = OperationMethod(deployment_operations.change_deployment_token)
    deployment_usage = ItemsMethod(deployment_operations.deployment_usage)
    revoke_deployment_token = OperationMethod(deployment_operations.revoke_deployment_token)
    deployment_events = ItemsMethod(deployment_operations.deployment_events)
    runtime_variants = ItemsMethod(deployment_operations.runtime_variants)
    imports = ItemsMethod(import_operations.imports)
    import_state = OperationMethod(import_operations.import_state)
    begin_import = OperationMethod(import_operations.begin_import)
    cancel_import = OperationMethod(import_operations.cancel_import)
    launch_options = OperationMethod(import_operations.launch_options)
    launch_import = OperationMethod(import_operations.launch_import)
    import_credentials = ItemsMethod(import_operations.import_credentials)
    add_import_credential = OperationMethod(import_operations.add_import_credential)
    delete_import_credential = OperationMethod(import_operations.delete_import_credential)
    templates = ItemsMethod(template_operations.templates)
    template = OperationMethod(template_operations.template)
    create_template = OperationMethod(template_operations.create_template)
    change_template = OperationMethod(template_operations.change_template)
    template_versions = ItemsMethod(template_operations.template_versions)
    template_version = OperationMethod(template_operations.template_version)
    use_template_version = OperationMethod(template_operations.use_template_version)
    launch_template = OperationMethod(template_operations.launch_template)
    delete_template = OperationMethod(template_operations.delete_template)
    call = OperationMethod(operations.call)
    listed = ItemsMethod(operations.listed)
    follow_events = ItemsMethod(operations.follow_events, "follow")
    follow_sessions = ItemsMethod(operations.follow_sessions, "follow")
    follow_logs = ItemsMethod(operations.follow_logs, "follow")
    watch = ItemsMethod(operations.watch, "follow")


def _method(operation: Callable[..., Any], client: Any, carry_out: str) -> Callable[..., Any]:
    """Return a function with the operation's arguments and docstring; without a client, that of the class."""

    @wraps(operation)
    def call(*args: Any, **options: Any) -> Any:
        return getattr(client, carry_out)(operation(*args, **options))

    return call
