from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('folders', '0003_measuring'),
    ]

    operations = [
        migrations.AddField(
            model_name='upload',
            name='on_conflict',
            field=models.CharField(choices=[('refuse', 'refuse the upload'), ('replace', 'replace the file'), ('keep-both', 'give the upload another name')], default='refuse', max_length=9),
        ),
        migrations.AddField(
            model_name='upload',
            name='finished_at',
            field=models.DateTimeField(blank=True, editable=False, help_text='Kept until it expires, for clients that missed the answer', null=True),
        ),
    ]
