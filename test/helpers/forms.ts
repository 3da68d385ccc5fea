// Forms as bytes, as clients write them.

export const BOUNDARY = '----form-boundary-4fz';
export const FORM_TYPE = `multipart/form-data; boundary=${BOUNDARY}`;

export type FormPart =
  | { readonly name: string; readonly value: string }
  | { readonly name: string; readonly file: Buffer; readonly filename?: string };

export const field = (name: string, value: string): FormPart => ({ name, value });
export const file = (bytes: Buffer, name = 'file'): FormPart => ({ name, file: bytes });

/** The bytes of a form with these parts. */
export function formBytes(parts: readonly FormPart[]): Buffer {
  const pieces = parts.flatMap((part) => {
    const begin = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${part.name}"`;
    if ('value' in part) return [Buffer.from(`${begin}\r\n\r\n${part.value}\r\n`)];
    const head = `${begin}; filename="${part.filename ?? 'a.mp3'}"\r\nContent-Type: audio/mpeg\r\n\r\n`;
    return [Buffer.from(head), part.file, Buffer.from('\r\n')];
  });
  return Buffer.concat([...pieces, Buffer.from(`--${BOUNDARY}--\r\n`)]);
}

/** Bytes without a pattern that a copy at the wrong place would hide, full of line ends and dashes. */
export function noise(length: number): Buffer {
  const block = Buffer.from(
    Array.from({ length: 65_521 }, (_, i) =>
      i % 97 < 4 ? (0x0d0a2d2d >>> (8 * (3 - (i % 97)))) & 0xff : (i * i * 31 + (i >> 3)) & 0xff,
    ),
  );
  const bytes = Buffer.alloc(length, block);
  for (let at = 0; at + 4 <= length; at += 4096) bytes.writeUInt32BE(at, at);
  return bytes;
}

/** The form as an upstream has to get it: the first value of `model` replaced, nothing else. */
export function renamed(form: Buffer, from: string, to: string): Buffer {
  const mark = Buffer.from(`name="model"\r\n\r\n${from}\r\n`);
  const at = form.indexOf(mark);
  if (at === -1) throw new Error('no such model in the form');
  return Buffer.concat([
    form.subarray(0, at),
    Buffer.from(`name="model"\r\n\r\n${to}\r\n`),
    form.subarray(at + mark.length),
  ]);
}
