// The text fields of a form that was read whole, for the check of the objects that they refer to. Files are not read.
import { MultipartParser } from '../http/multipart/multipart-parser.ts';
import { boundaryOf } from '../http/multipart/part-head.ts';

/** In another charset, a reader could find another text. */
const PLAIN = /^text\/plain(?:[ \t]*;[ \t]*charset="?(?:utf-8|us-ascii)"?)?$/;

/**
 * @param contentType of the form
 * @returns names and values as a query, in order
 * @throws GatewayError invalid_form
 */
export function fieldsOf(body: Buffer, contentType: string): string {
  const fields = new URLSearchParams();
  const pieces: Buffer[] = [];
  let name: string | undefined;
  const parser = new MultipartParser(boundaryOf(contentType), {
    onPart: (head, fault) => {
      name = head.isFile ? undefined : Buffer.from(head.name, 'latin1').toString();
      if (name !== undefined && head.type !== undefined && !PLAIN.test(head.type))
        throw fault('a field that is no file is not plain text');
      return name !== undefined;
    },
    onContent: (bytes) => void pieces.push(Buffer.from(bytes)),
    onPartEnd: () => {
      if (name !== undefined) fields.append(name, Buffer.concat(pieces).toString());
      pieces.length = 0;
    },
    onClose: () => undefined,
  });
  parser.push(body);
  parser.end();
  return fields.toString();
}
