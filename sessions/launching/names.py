"""Random names for sessions, readable and easy to tell apart. Pure but for chance."""

import secrets
from typing import Final

_ADJECTIVES: Final = (
    "able amber ample apt ardent azure bold bonny brave bright brisk calm candid civil clear clever cool coral "
    "crisp dapper deft eager early easy elder fair fast fleet fond frank free fresh gentle glad golden good grand "
    "green handy happy hardy hearty honest humble ideal jolly just keen kind lively loyal lucid lucky mellow "
    "merry mild modest neat nimble noble patient placid plain plucky polite prime proud quick quiet rapid ready "
    "rosy royal scarlet serene sharp silver smart snug solid sound spry steady still stout sunny swift tidy trim "
    "true upbeat vivid warm wise witty "
)
_NOUNS: Final = (
    "alder aspen badger beaver beech birch bison brook canyon cedar cicada comet condor coral cove crane creek "
    "cricket curlew dolphin dune eagle egret elm falcon fern finch fjord fox gannet gecko geyser glacier grove "
    "gull harbor hare hawk hazel heron ibex island ivy juniper kestrel lagoon larch lark laurel linnet lotus lynx "
    "magpie maple marmot marten meadow meteor moose nebula newt oak orchid oriole osprey otter owl panda pebble "
    "pine plover poplar puffin quail raven reef ridge robin rowan salmon seal sequoia shore sparrow spruce squid "
    "stork summit swan swift tern thistle thrush tiger toucan trout tulip valley walnut whale willow wren yew "
    "zebra "
)


def random_name() -> str:
    """Return a name such as "calm-heron-52": one of 889,200."""
    return f"{secrets.choice(_ADJECTIVES.split())}-{secrets.choice(_NOUNS.split())}-{10 + secrets.randbelow(90)}"
