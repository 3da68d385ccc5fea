// The calls without a model that are forwarded, one line each: the path, the kind of body, and what its answer creates or ends. Other calls
// are rejected, because the gateway would not know whose objects they refer to.

import { GatewayError } from '../errors.ts';
import type { SeenObject } from '../proxy/objects/object-owners.ts';
import { memberOf } from '../wire/error-answer.ts';
import { uncountedOutput } from './batch-records.ts';

type BodyKind =
  /** None, or JSON, which is read whole and checked. */
  | 'json'
  /** JSON, or a form, which is read whole and whose fields are checked. */
  | 'form'
  /** A file, piped as it arrives. */
  | 'stream'
  | 'none';

export interface Operation {
  readonly method: string;
  /** Path segments below `/v1`; `{}` is the id of an object that the holder must own, `{item}` an id inside such an object. */
  readonly path: string;
  readonly body: BodyKind;
  /** The kind of the created object, whose id is in the answer. */
  readonly makes?: string;
  /** What runs a model that the request names and the gateway does not check: only for keys that may use all models. */
  readonly runs?: string;
  /** The call lists the holder's objects of this kind. */
  readonly lists?: string;
  /** A successful answer ends the object in the path. */
  readonly ends?: boolean;
  /** Objects in the answer, or in an element of a list, that derive from the holder's. */
  readonly derives?: (answer: unknown) => readonly SeenObject[];
  /** The call shows or ends the content of the object in the path, which may be the output of a batch: its usage is counted before. */
  readonly shows?: boolean;
  /** The answer is an item of a conversation, or a list of items, which later requests may refer to. */
  readonly hasItems?: boolean;
}

/** A batch names its result files once they exist. */
function filesOfBatch(answer: unknown): readonly SeenObject[] {
  const batch = textIn(answer, 'id');
  const output = textIn(answer, 'output_file_id');
  const files = ['output_file_id', 'error_file_id'].flatMap((name) => {
    const id = textIn(answer, name);
    return id === undefined ? [] : [{ id, kind: 'file', purpose: 'batch_output' }];
  });
  return output === undefined || batch === undefined ? files : [...files, uncountedOutput(output, batch)];
}

/** A completed upload becomes a file. */
function fileOfUpload(answer: unknown): readonly SeenObject[] {
  const file = memberOf(answer, 'file');
  const id = textIn(file, 'id');
  return id === undefined ? [] : [{ id, kind: 'file', purpose: textIn(file, 'purpose') }];
}

const get = (path: string): Operation => ({ method: 'GET', path, body: 'none' });
const post = (path: string): Operation => ({ method: 'POST', path, body: 'json' });
const form = (path: string): Operation => ({ method: 'POST', path, body: 'form' });
const remove = (path: string): Operation => ({ method: 'DELETE', path, body: 'none' });

const PASSTHROUGH_OPERATIONS: readonly Operation[] = [
  { ...get('files'), lists: 'file' },
  { ...post('files'), body: 'stream', makes: 'file' },
  get('files/{}'),
  { ...remove('files/{}'), ends: true, shows: true },
  { ...get('files/{}/content'), shows: true },
  { ...post('uploads'), makes: 'upload' },
  { ...post('uploads/{}/parts'), body: 'stream', makes: 'part' },
  { ...post('uploads/{}/complete'), derives: fileOfUpload },
  post('uploads/{}/cancel'),
  { ...get('batches'), lists: 'batch', derives: filesOfBatch },
  { ...post('batches'), makes: 'batch', derives: filesOfBatch },
  { ...get('batches/{}'), derives: filesOfBatch },
  { ...post('batches/{}/cancel'), derives: filesOfBatch },
  { ...get('vector_stores'), lists: 'vector_store' },
  { ...post('vector_stores'), makes: 'vector_store' },
  get('vector_stores/{}'),
  post('vector_stores/{}'),
  { ...remove('vector_stores/{}'), ends: true },
  post('vector_stores/{}/search'),
  get('vector_stores/{}/files'),
  post('vector_stores/{}/files'),
  get('vector_stores/{}/files/{}'),
  post('vector_stores/{}/files/{}'),
  remove('vector_stores/{}/files/{}'),
  get('vector_stores/{}/files/{}/content'),
  { ...post('vector_stores/{}/file_batches'), makes: 'file_batch' },
  get('vector_stores/{}/file_batches/{}'),
  post('vector_stores/{}/file_batches/{}/cancel'),
  get('vector_stores/{}/file_batches/{}/files'),
  { ...post('conversations'), makes: 'conversation' },
  get('conversations/{}'),
  post('conversations/{}'),
  { ...remove('conversations/{}'), ends: true },
  { ...get('conversations/{}/items'), hasItems: true },
  { ...post('conversations/{}/items'), hasItems: true },
  { ...get('conversations/{}/items/{item}'), hasItems: true },
  remove('conversations/{}/items/{item}'),
  { ...get('containers'), lists: 'container' },
  { ...post('containers'), makes: 'container' },
  get('containers/{}'),
  { ...remove('containers/{}'), ends: true },
  get('containers/{}/files'),
  { ...form('containers/{}/files'), makes: 'container_file' },
  // Files of a container are also created by the code that runs in it.
  get('containers/{}/files/{item}'),
  get('containers/{}/files/{item}/content'),
  remove('containers/{}/files/{item}'),
  { ...get('skills'), lists: 'skill' },
  { ...form('skills'), makes: 'skill' },
  get('skills/{}'),
  post('skills/{}'),
  { ...remove('skills/{}'), ends: true },
  get('skills/{}/content'),
  get('skills/{}/versions'),
  form('skills/{}/versions'),
  get('skills/{}/versions/{item}'),
  remove('skills/{}/versions/{item}'),
  get('skills/{}/versions/{item}/content'),
  { ...get('videos'), lists: 'video' },
  { ...form('videos'), makes: 'video', runs: 'a video' },
  { ...form('videos/edits'), makes: 'video', runs: 'a video' },
  { ...form('videos/extensions'), makes: 'video', runs: 'a video' },
  { ...form('videos/characters'), makes: 'character' },
  get('videos/characters/{}'),
  get('videos/{}'),
  { ...remove('videos/{}'), ends: true },
  get('videos/{}/content'),
  { ...post('videos/{}/remix'), makes: 'video', runs: 'a video' },
];

/** A call of the table. */
export interface FoundOperation {
  readonly operation: Operation;
  /** Ids of objects in the path, in order. */
  readonly ids: readonly string[];
  /** Ids inside these objects. */
  readonly items: readonly string[];
}

/** Valid ids in paths: no characters with which a server could reach another path. */
const ID = /^[A-Za-z0-9_-]{1,128}$/;

const TABLE = PASSTHROUGH_OPERATIONS.map((operation) => ({ operation, segments: operation.path.split('/') }));

/** @param path of the request, raw, beginning with `/v1/` @throws GatewayError unknown_url or method_not_allowed */
export function findOperation(method: string, path: string): FoundOperation {
  const given = path.slice('/v1/'.length).split('/');
  const matching = TABLE.filter(
    ({ segments }) =>
      segments.length === given.length &&
      segments.every((segment, index) =>
        segment.startsWith('{') ? ID.test(given[index] ?? '') : segment === given[index],
      ),
  );
  const found = matching.find(({ operation }) => operation.method === method);
  if (found === undefined) {
    if (matching.length === 0) throw new GatewayError('unknown_url');
    throw new GatewayError(
      'method_not_allowed',
      `This URL is for ${matching.map(({ operation }) => operation.method).join(', ')} requests.`,
    );
  }
  const at = (kind: string) =>
    found.segments.flatMap((segment, index) => (segment === kind ? [given[index] ?? ''] : []));
  return { operation: found.operation, ids: at('{}'), items: at('{item}') };
}

/** Whether the answer has to be read before the client may have it. */
export function needsReading({ makes, derives, ends, hasItems }: Operation): boolean {
  return makes !== undefined || derives !== undefined || ends === true || hasItems === true;
}

/**
 * The objects that the holder owns after this answer.
 * @throws GatewayError upstream_invalid_response if the answer has no id of the created object
 */
export function seenIn({ makes, derives }: Operation, answer: unknown): readonly SeenObject[] {
  const derived = derives?.(answer) ?? [];
  if (makes === undefined) return derived;
  const id = textIn(answer, 'id');
  if (id === undefined || !ID.test(id)) {
    const cause = new Error('the answer has no id of the created object');
    throw new GatewayError('upstream_invalid_response', undefined, { cause });
  }
  return [{ id, kind: makes, purpose: textIn(answer, 'purpose') }, ...derived];
}

function textIn(value: unknown, name: string): string | undefined {
  const text = memberOf(value, name);
  return typeof text === 'string' && text !== '' ? text : undefined;
}
