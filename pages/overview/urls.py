"""Routes of the pages that show the platform at a glance; the summary is the home page, in gpuplatform/urls.py."""

from django.urls import path

from pages.overview import environments, hosts, limits, people, projects, summary, usage

app_name = "overview"

urlpatterns = [
    path("", summary.home, name="home"),
    path("hosts/", hosts.host_list, name="hosts"),
    path("hosts/<str:name>/", hosts.host_detail, name="host"),
    path("hosts/<str:name>/drain/", hosts.drain, name="host-drain"),
    path("hosts/<str:name>/return/", hosts.take_back, name="host-return"),
    path("environments/", environments.environment_list, name="environments"),
    path("environments/<int:image_id>/enable/", environments.enable, name="environment-enable"),
    path("projects/", projects.project_list, name="projects"),
    path("projects/<int:project_id>/", projects.detail, name="project"),
    path("projects/<int:project_id>/members/", projects.add_member, name="project-add-member"),
    path("projects/<int:project_id>/members/<int:member_id>/role/", projects.set_role, name="project-set-role"),
    path("projects/<int:project_id>/members/<int:member_id>/remove/", projects.remove_member, name="project-remove"),
    path(
        "projects/<int:project_id>/invitations/<int:invitation_id>/withdraw/",
        projects.withdraw_invitation,
        name="project-withdraw-invitation",
    ),
    path("usage/", usage.usage, name="usage"),
    path("usage/csv/", usage.usage_csv, name="usage-csv"),
    path("users/<int:user_id>/", people.user_page, name="user"),
    path("accounts/limits/", limits.my_limits, name="limits"),
]
