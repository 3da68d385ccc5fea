// The text fields of a form that was read whole, for the check of the objects that they refer to. Files are not read.
import { GatewayError } from '../errors.ts';
import { MultipartParser } from '../http/multipart/multipart-parser.ts';
import { boundaryOf } from '../http/multipart/part-head.ts';

/** In another charset, a reader could find another text. */
const PLAIN = /^text\/plain(?:[ \t]*;[ \t]*charset="?(?:utf-8|us-ascii)"?)?$/;

/** Maximum bytes of all fields: they are searched for references without a pause. */
const MAX_FIELD_BYTES = 1024 * 1024;

/**
 * @param contentType of the form
 * @returns names and values, in order
 * @throws GatewayError invalid_form, or request_too_large for fields of more than 1 MiB
 */
export function fieldsOf(body: Buffer, contentType: string): readonly (readonly [string, string])[] {
  const fields: [string, string][] = [];
  let size = 0;
  const pieces: Buffer[] = [];
  let name: string | undefined;
  const parser = new MultipartParser(boundaryOf(contentType), {
    onPart: (head, fault) => {
      name = head.isFile ? undefined : Buffer.from(head.name, 'latin1').toString();
      if (name !== undefined && head.type !== undefined && !PLAIN.test(head.type))
        throw fault('a field that is no file is not plain text');
      return name !== undefined;
    },
    onContent: (bytes) => {
      size += bytes.length;
      if (size > MAX_FIELD_BYTES)
        throw new GatewayError(
          'request_too_large',
          'The fields of the form that are no files have more than 1 MiB.',
        );
      pieces.push(Buffer.from(bytes));
    },
    onPartEnd: () => {
      if (name !== undefined) fields.push([name, Buffer.concat(pieces).toString()]);
      pieces.length = 0;
    },
    onClose: () => undefined,
  });
  parser.push(body);
  parser.end();
  return fields;
}
