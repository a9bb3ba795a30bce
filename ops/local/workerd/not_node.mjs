// Pyodide takes whatever has `process.versions.node` for Node.js and reaches for a file system. Imported before it.
delete globalThis.process;
