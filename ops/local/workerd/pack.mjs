// A pack is many files in one: the length of the index (4 bytes, little endian), the index as JSON
// `[[path, offset, size], …]` with offsets into what follows, then the bytes. It is unpacked without copying.

export function* files(pack) {
  const size = new DataView(pack.buffer, pack.byteOffset, 4).getUint32(0, true);
  const start = 4 + size;
  const index = JSON.parse(new TextDecoder().decode(pack.subarray(4, start)));
  for (const [path, offset, length] of index) yield [path, pack.subarray(start + offset, start + offset + length)];
}

export function makePack(entries) {
  const index = [];
  let offset = 0;
  for (const [path, bytes] of entries) {
    index.push([path, offset, bytes.length]);
    offset += bytes.length;
  }
  const head = new TextEncoder().encode(JSON.stringify(index));
  const pack = new Uint8Array(4 + head.length + offset);
  new DataView(pack.buffer).setUint32(0, head.length, true);
  pack.set(head, 4);
  for (const [i, [, bytes]] of entries.entries()) pack.set(bytes, 4 + head.length + index[i][1]);
  return pack;
}
