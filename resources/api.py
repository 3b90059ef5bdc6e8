"""API of hosts, images, presets and groups: read-only lists of what the caller may use."""

from django.db.models import Count, F, Prefetch, Q, QuerySet, Sum
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from accounts.api import user_of
from resources.models import Gpu, Host, Image, Preset, ResourceGroup
from resources.serializers import HostSerializer, ImageSerializer, PresetSerializer, ResourceGroupSerializer
from restapi.views import ApiViewSet


class ImageViewSet(ListModelMixin, RetrieveModelMixin, ApiViewSet[Image]):
    """The images that the caller may launch; superadmins see all of them, the disabled ones too."""

    queryset = Image.objects.all()
    serializer_class = ImageSerializer

    def get_queryset(self) -> QuerySet[Image]:
        """Return the images visible to the caller."""
        user = user_of(self.request)
        hosts = Q(on_hosts__host__group__in=ResourceGroup.objects.usable_by(user).values("pk"))
        images = Image.objects.visible_to(user).prefetch_related("apps")
        return images.annotate(on_hosts_count=Count("on_hosts", filter=hosts)).order_by("environment", "version", "pk")


class ResourceGroupViewSet(ListModelMixin, ApiViewSet[ResourceGroup]):
    """The resource groups in which the caller may start sessions."""

    queryset = ResourceGroup.objects.all()
    serializer_class = ResourceGroupSerializer

    def get_queryset(self) -> QuerySet[ResourceGroup]:
        """Return the groups that the caller may use."""
        return ResourceGroup.objects.usable_by(user_of(self.request))


class PresetViewSet(ListModelMixin, ApiViewSet[Preset]):
    """The presets of the caller's resource groups, and those offered in all of them."""

    queryset = Preset.objects.select_related("group")
    serializer_class = PresetSerializer

    def get_queryset(self) -> QuerySet[Preset]:
        """Return the presets that the caller may use."""
        usable = ResourceGroup.objects.usable_by(user_of(self.request)).values("pk")
        return super().get_queryset().filter(Q(group=None) | Q(group__in=usable)).order_by("fgpu", "cpu", "name", "id")


class HostViewSet(ListModelMixin, ApiViewSet[Host]):
    """The hosts of the caller's resource groups, with capacity and usage."""

    queryset = Host.objects.all()
    serializer_class = HostSerializer

    def get_queryset(self) -> QuerySet[Host]:
        """Return the hosts visible to the caller, with their present GPUs; two queries."""
        user = user_of(self.request)
        hosts = super().get_queryset().select_related("group", "health").order_by("name")
        if not user.is_superuser:
            hosts = hosts.filter(group__in=ResourceGroup.objects.usable_by(user).values("pk"))
        gpus = Gpu.objects.filter(is_present=True).select_related("reading").order_by("index")
        return hosts.prefetch_related(Prefetch("gpus", gpus.annotate(held=Sum("shares__milli", default=0)))).annotate(
            cpu_held_milli=Sum(F("leases__cpu") * F("leases__core_milli"), default=0),
            memory_held=Sum("leases__memory", default=0),
        )
