"""Runs and datasets on the Hugging Face hub, or in a folder that stands for it.

    push_run, push_dataset    copy, describe, list in a manifest, and hand over to a hub
    pull                      the opposite: nothing has its name before all of it is checked
    hub_at                    the hub: a folder, or the Hugging Face hub

What comes from a hub was made by somebody else. It is data: names, sizes and SHA-256 are checked by
a manifest, no file is run, unpickled or imported, and nothing is written outside the folder asked
for.
"""

from element_rl.hub.places import hub_at
from element_rl.hub.pulling import Pulled, pull
from element_rl.hub.pushing import push_dataset, push_run
from element_rl.hub.repository import Hub, HubError, Repository, repository_of

__all__ = [
    "Hub",
    "HubError",
    "Pulled",
    "Repository",
    "hub_at",
    "pull",
    "push_dataset",
    "push_run",
    "repository_of",
]
