"""The local edge: the deployed bundle on a real workerd, with D1, R2 and Durable Objects in a folder.

- Here, in Python on the host: `edge` starts and stops it all, `config` reads wrangler.toml, `entrypoints` finds the classes
  in the bundle, `state` looks after the folder, `migrations` and `snapshot` prepare what a start needs.
- `node/`, JavaScript under Node: `serve` runs Miniflare with `options`, writes the `bundle` pack, fires the `crons`.
- `workerd/`, JavaScript in the isolate: `entrypoints` are the classes that workerd calls, `interpreter` keeps one Python
  alive, `boot` brings it up under the rules of `startup`, `pyodide_host` and `sdk` give Pyodide and the SDK what they need.
- `inside/`, Python in the isolate: `_edge` imports and calls the Worker, `_cloudflare` stands in for the platform's own.
"""
