"""Resource groups granted to projects, and the kinds of sessions that they allow."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds them."""

    dependencies = [
        ('accounts', '0008_projects'),
        ('resources', '0013_image_gpu_memory'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcegroup',
            name='allow_batch',
            field=models.BooleanField(default=True, help_text='Sessions that run a command and end with it may start here', verbose_name='batch sessions'),
        ),
        migrations.AddField(
            model_name='resourcegroup',
            name='allow_interactive',
            field=models.BooleanField(default=True, help_text='Sessions without a command of their own may start here', verbose_name='interactive sessions'),
        ),
        migrations.AddField(
            model_name='resourcegroup',
            name='projects',
            field=models.ManyToManyField(blank=True, help_text='Whose sessions may start here, whoever of the members starts them', related_name='resource_groups', to='accounts.project'),
        ),
        migrations.AddConstraint(
            model_name='resourcegroup',
            constraint=models.CheckConstraint(condition=models.Q(('allow_interactive', True), ('allow_batch', True), _connector='OR'), name='group_allows_a_kind_of_session'),
        ),
    ]
