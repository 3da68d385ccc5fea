// The places of a request body where a text is no reference to an object, whatever it looks like. Each is meant exactly as
// the API has it, so that a member of the same name elsewhere hides nothing.

/**
 * What a value is by where it stands:
 *
 * - `plain`: what its name and its form say.
 * - `map`: texts directly in it are the holder's own notes, under names of the holder's choice.
 * - `free`: such a text.
 * - `text`: what a person, a model or a tool has written.
 * - `quoted`: in a description of data, or in what an upstream has answered before: not a reference, but not another holder's.
 */
export type ObjectPosition = 'plain' | 'map' | 'free' | 'text' | 'quoted';

/** The content that an item of a type has; one without it is its id alone, and stands for what the upstream keeps. */
const CONTENT_OF: Readonly<Record<string, readonly string[]>> = {
  message: ['content'],
  // The summary is not what reasoning stands for: an upstream looks that up by the id.
  reasoning: ['content', 'encrypted_content'],
  compaction: ['encrypted_content'],
  function_call: ['arguments'],
  function_call_output: ['output'],
  custom_tool_call: ['input'],
  custom_tool_call_output: ['output'],
  web_search_call: ['action'],
  file_search_call: ['queries', 'results'],
  image_generation_call: ['result'],
  code_interpreter_call: ['code'],
  computer_call: ['action', 'actions'],
  computer_call_output: ['output'],
  local_shell_call: ['action'],
  local_shell_call_output: ['output'],
  shell_call: ['action'],
  shell_call_output: ['output'],
  apply_patch_call: ['operation'],
  apply_patch_call_output: ['output', 'status'],
  mcp_call: ['arguments'],
  mcp_list_tools: ['tools'],
  mcp_approval_request: ['arguments'],
  mcp_approval_response: ['approve'],
  tool_search_call: ['arguments'],
  tool_search_output: ['tools'],
  configuration_update: ['reasoning', 'text'],
};
/** What an upstream looks up by the id where the content is empty. Other content may be empty: a call without arguments, say. */
const LOOKED_UP: ReadonlySet<string> = new Set(['reasoning', 'compaction', 'image_generation_call']);
const CONTENT: ReadonlySet<string> = new Set([...Object.values(CONTENT_OF).flat(), 'function']);

export function isContent(name: string): boolean {
  return CONTENT.has(name);
}

/**
 * Whether an object with these members is more than a reference.
 * @param types all that are given; an object without one is a message
 * @param content names of its members with content, as they are written
 * @param empty those of which the content is empty, and not null
 */
export function isWhole(
  types: readonly string[],
  content: readonly string[],
  empty: readonly string[],
): boolean {
  const given = types.filter((type) => type !== '');
  const wanted = given.length === 0 ? ['message'] : given;
  return wanted.every((type) => {
    const names = Object.hasOwn(CONTENT_OF, type) ? CONTENT_OF[type] : undefined;
    if (names === undefined) return content.some((name) => name !== 'status');
    const has = (name: string) => names.includes(name);
    return content.some(has) || (!LOOKED_UP.has(type) && empty.some(has));
  });
}

/** Also names that a person chose for something, and what a service is to know about its caller. */
const TEXTS: ReadonlySet<string> = new Set([
  'text',
  'output',
  'content',
  'arguments',
  'instructions',
  'input',
  'description',
  'refusal',
  'code',
  'query',
  'prompt',
  'name',
  'title',
  'key',
  'value',
  'stop',
  'user',
  'user_id',
  'session_id',
  'custom_id',
  'safety_identifier',
  'prompt_cache_key',
]);

const MAPS = ['metadata', 'attributes', 'files.#.attributes', 'prompt.variables'];
/** Descriptions of data, and what goes to other servers or tools under names that these chose. */
const SCHEMAS = [
  'tools.#.parameters',
  'tools.#.output_schema',
  'tools.#.function.parameters',
  'tools.#.tools.#.parameters',
  'tools.#.tools.#.output_schema',
  'tools.#.headers',
  'functions.#.parameters',
  'text.format.schema',
  'response_format.json_schema.schema',
  'guided_json',
  'structured_outputs.json',
  'chat_template_kwargs',
];
/** Below an item, or a message. */
const ANSWERED = [
  'results',
  'annotations',
  'content.#.annotations',
  'pending_safety_checks',
  'acknowledged_safety_checks',
  'tools.#.parameters',
  'tools.#.output_schema',
  'tools.#.input_schema',
  'tools.#.tools.#.parameters',
  'tools.#.tools.#.output_schema',
  'text.format.schema',
  'action.env',
  'reasoning_details',
];
const ITEM_LISTS = ['input', 'items', 'messages'];

const PLACES: ReadonlyMap<string, ObjectPosition> = new Map<string, ObjectPosition>([
  ...MAPS.map((path) => [path, 'map'] as const),
  ...SCHEMAS.map((path) => [path, 'quoted'] as const),
  ...ITEM_LISTS.flatMap((list) => ANSWERED.map((path) => [`${list}.#.${path}`, 'quoted'] as const)),
]);
/** The last names of those paths. */
const LAST_NAMES = new Set([...PLACES.keys()].map((path) => path.slice(path.lastIndexOf('.') + 1)));

/**
 * @param path names from depth 1 to `depth`, as they are written; `#` for an element of an array
 * @param above what the value around it is
 * @param root where the body of a request begins, if not at the top
 */
export function objectPositionOf(
  path: readonly string[],
  depth: number,
  above: ObjectPosition | undefined,
  root: string | undefined,
): ObjectPosition {
  if (above === 'quoted') return above;
  if (above === 'map') return 'free';
  const name = path[depth] ?? '';
  if (LAST_NAMES.has(name)) {
    const isBelowRoot = root !== undefined && depth > 1 && path[1] === root;
    const place = PLACES.get(path.slice(isBelowRoot ? 2 : 1, depth + 1).join('.'));
    if (place !== undefined) return place;
  }
  return TEXTS.has(name) ? 'text' : 'plain';
}
