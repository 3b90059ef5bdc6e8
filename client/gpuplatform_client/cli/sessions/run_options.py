"""The options of `gpuplatform run`, as types of its parameters."""

from typing import Annotated

import typer

from gpuplatform_client.cli.names import complete_folder

Command = Annotated[list[str] | None, typer.Argument(help="What to run, after --; nothing: an interactive session")]
Cpu = Annotated[int | None, typer.Option(help="CPU cores")]
Memory = Annotated[str | None, typer.Option(help='Such as "4g"')]
SharedMemory = Annotated[str | None, typer.Option(help='Such as "1g"')]
Fgpu = Annotated[str | None, typer.Option(help="Fractions of a GPU, in steps of 0.01")]
GpuMemory = Annotated[
    str | None, typer.Option(help="Of one GPU, such as 12G, whatever its size; with --fgpu as the least of it")
]
Preset = Annotated[str | None, typer.Option(help="Instead of the amounts")]
Nodes = Annotated[
    str | None,
    typer.Option(help="Members of a cluster, each with these amounts; 2-4: it grows while there is room"),
]
MainCpu = Annotated[int | None, typer.Option(help="Of the first member alone")]
MainMemory = Annotated[str | None, typer.Option(help="Of the first member alone")]
MainFgpu = Annotated[str | None, typer.Option(help="Of the first member alone, such as 0")]
ClusterMode = Annotated[str | None, typer.Option(help="Its hosts: any, single-host or spread")]
ShareGpus = Annotated[bool, typer.Option("--share-gpus", help="Its members may have parts of one GPU")]
OnMain = Annotated[bool, typer.Option("--on-main", help="main1 alone runs the command, as for mpirun and Ray")]
MaxRestarts = Annotated[int | None, typer.Option(help="How often all start again after one failed")]
Group = Annotated[str | None, typer.Option(help="Resource group")]
SessionTitle = Annotated[str | None, typer.Option(help="Of the session")]
Variables = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, may be repeated")]
Mount = Annotated[
    list[str] | None, typer.Option(help="FOLDER[:PATH[:ro]], may be repeated", autocompletion=complete_folder)
]
TimeLimit = Annotated[str | None, typer.Option(help='Such as "4h"')]
Project = Annotated[str | None, typer.Option(help="A project of yours to which it belongs")]
Preemptible = Annotated[bool, typer.Option("--preemptible", help="It may be ended for others that wait")]
DependsOn = Annotated[
    list[str] | None,
    typer.Option(
        "--depends-on",
        "--dependency",
        help="ID, or KIND:ID with after, after_ok, after_not_ok or after_any, also as Slurm spells it; "
        "parted by commas, may be repeated",
    ),
]
Array = Annotated[
    str | None, typer.Option(help='Tasks by index, such as "1-1000%50": 50 at a time; prints the id, does not wait')
]
Param = Annotated[
    list[str] | None,
    typer.Option(help='NAME=VALUE,VALUE of a grid of tasks, such as "lr=0.1,0.01"; may be repeated'),
]
MaxParallel = Annotated[int | None, typer.Option(min=1, help="Of an array: tasks that run at once")]
Retries = Annotated[int | None, typer.Option(min=0, help="Of an array: how often a failed task runs again")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Print the id and do not wait")]
DryRun = Annotated[bool, typer.Option(help="Say when it would start, and launch nothing")]
