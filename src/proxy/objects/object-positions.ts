// Positions in a request body where a text is never an object reference. Paths match exactly as in the API, so that a member of the
// same name elsewhere hides nothing.

/**
 * The kind of a value by its position:
 *
 * - `plain`: determined by its name and form.
 * - `map`: holds the holder's own notes, under names of the holder's choice.
 * - `free`: a text directly in such a map.
 * - `text`: written by a person, a model or a tool.
 * - `quoted`: in a data description or in an earlier answer: not a reference, but it must not be another holder's object.
 */
export type ObjectPosition = 'plain' | 'map' | 'free' | 'text' | 'quoted';

/** Item type → members with its content. An item without content is only an id, which the upstream looks up. */
const CONTENT_OF: Readonly<Record<string, readonly string[]>> = {
  message: ['content'],
  // The summary is not the content: an upstream looks the reasoning up by its id.
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
/** Types that an upstream looks up by id when their content is empty. Others may be empty, such as a call without arguments. */
const LOOKED_UP: ReadonlySet<string> = new Set(['reasoning', 'compaction', 'image_generation_call']);
const CONTENT: ReadonlySet<string> = new Set([...Object.values(CONTENT_OF).flat(), 'function']);

export function isContent(name: string): boolean {
  return CONTENT.has(name);
}

/**
 * Whether an object with these members is more than a reference.
 * @param types all types given; an object without one is a message
 * @param content names of its content members, unfolded
 * @param empty those whose content is empty but not null
 */
export function isCompleteItem(
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

/** Members with free text, including user-chosen names and data about the caller. */
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
  'continuation_id',
]);

const MAPS = ['metadata', 'attributes', 'files.#.attributes', 'prompt.variables'];
/** Descriptions of data, and values for other servers or tools, which chose the names. */
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
/** Below an item or a message. */
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

const POSITIONS: ReadonlyMap<string, ObjectPosition> = new Map<string, ObjectPosition>([
  ...MAPS.map((path) => [path, 'map'] as const),
  ...SCHEMAS.map((path) => [path, 'quoted'] as const),
  ...ITEM_LISTS.flatMap((list) => ANSWERED.map((path) => [`${list}.#.${path}`, 'quoted'] as const)),
]);
/** The last name of each path. */
const LAST_NAMES = new Set([...POSITIONS.keys()].map((path) => path.slice(path.lastIndexOf('.') + 1)));

/**
 * @param path names from depth 1 to `depth`, unfolded; `#` for an array element
 * @param above the kind of the enclosing value
 * @param root the member that holds the request body, if not the top level
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
    const position = POSITIONS.get(path.slice(isBelowRoot ? 2 : 1, depth + 1).join('.'));
    if (position !== undefined) return position;
  }
  return TEXTS.has(name) ? 'text' : 'plain';
}
