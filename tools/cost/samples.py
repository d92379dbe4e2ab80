"""Operator samples: the tables that importers write and fit.py reads.

A Samples object holds one device's measurements of one source. Times are microseconds on one rank. Columns:
  gemm       dtype m n k us version          [m, k] x [k, n]
  prefill    q kv hd kv_dtype batch chunk context us version     `batch` equal causal chunks over `context` earlier
  tokens
  decode     q kv hd kv_dtype batch context us version           context: KV tokens read by each sequence
  allreduce  gpus bytes us version           sendrecv   bytes us version
  exchange   gpus bytes us version           all-gather and reduce-scatter of a buffer of `bytes`, together
  experts    dtype hidden inner chosen touched tokens us version     a mixture; touched: different experts used
  elementwise op tokens bytes us version     bytes: read and written
Sources: tools/cost/import_aiconfigurator.py, tools/cost/import_profiles.py.
"""

from __future__ import annotations

import dataclasses
import pathlib

import pandas as pd

COLUMNS = {
    "gemm": ["dtype", "m", "n", "k", "us", "version"],
    "prefill": ["q", "kv", "hd", "kv_dtype", "batch", "chunk", "context", "us", "version"],
    "decode": ["q", "kv", "hd", "kv_dtype", "batch", "context", "us", "version"],
    "allreduce": ["gpus", "bytes", "us", "version"],
    "exchange": ["gpus", "bytes", "us", "version"],
    "sendrecv": ["bytes", "us", "version"],
    "experts": ["dtype", "hidden", "inner", "chosen", "touched", "tokens", "us", "version"],
    "elementwise": ["op", "tokens", "bytes", "us", "version"],
}


@dataclasses.dataclass
class Samples:
    device: str
    backend: str
    source: str  # one line: origin, version, licence
    tables: dict[str, pd.DataFrame]

    def table(self, kind: str) -> pd.DataFrame:
        found = self.tables.get(kind)
        return found if found is not None else pd.DataFrame(columns=COLUMNS[kind])

    def versions(self, kind: str) -> list[str]:
        return sorted(self.table(kind)["version"].unique())

    def write(self, folder: pathlib.Path) -> None:
        """One CSV per table: <folder>/<device>-<backend>/<kind>.csv.gz."""
        target = folder / f"{self.device}-{self.backend}"
        target.mkdir(parents=True, exist_ok=True)
        for kind, rows in self.tables.items():
            rows[COLUMNS[kind]].to_csv(target / f"{kind}.csv.gz", index=False)


def merged(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """One row per key: repeated measurements of one key become their median."""
    keys = [c for c in COLUMNS[kind] if c not in ("us", "version")]
    return rows.groupby(keys, as_index=False).agg(us=("us", "median"), version=("version", "first"))
