import os
from typing import ContextManager, Literal, Optional, Union

from divvy import Coordinator

def cluster(ps: int = ..., workers: int = ..., *, seed: int = ...,
            checkpoint_dir: Union[str, "os.PathLike[str]"] = ...,
            min_shard_bytes: Optional[int] = ...,
            placement: Literal["round_robin", "balanced"] = ...) -> ContextManager[Coordinator]: ...
