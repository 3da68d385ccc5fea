// Recognizes the configuration of LiteLLM's proxy, and says how its parts are called here. docs/configuration.md has the same table.
import type { YamlMapping, YamlPosition } from '../source/yaml-tree.ts';
import { ConfigField } from './config-field.ts';

const NONE = 'nothing here';
const FALLBACK = '`targets[].priority` and `fallback_on` of a model';
const METRICS = '`/metrics`, and traces by the variables `OTEL_*`';

/** A part of LiteLLM's file → its name here. Parts of a section follow it after a dot. */
export const LITELLM_PARTS: Readonly<Record<string, string>> = {
  model_list: '`models`, each with `targets`; every account at a vendor is an entry of `upstreams`',
  'model_list.model_name': 'the name in `models`',
  'litellm_params.model': '`targets[].model`, without the prefix of the vendor',
  'litellm_params.api_base': '`upstreams.NAME.base_url`, with the version of the API (`/v1`)',
  'litellm_params.base_url': '`upstreams.NAME.base_url`, with the version of the API (`/v1`)',
  'litellm_params.api_key': '`upstreams.NAME.api_key`',
  'litellm_params.api_version': '`upstreams.NAME.query`: `{ api-version: … }`',
  'litellm_params.organization': '`upstreams.NAME.headers`: `{ openai-organization: … }`',
  'litellm_params.extra_headers': '`upstreams.NAME.headers`',
  'litellm_params.rpm':
    '`requests_per_minute` of a tier, or of `models.NAME.limits.TIER`: limits are of callers',
  'litellm_params.tpm':
    '`tokens_per_minute` of a tier, or of `models.NAME.limits.TIER`: limits are of callers',
  'litellm_params.max_parallel_requests': '`upstreams.NAME.max_concurrency`',
  'litellm_params.timeout': '`timeouts.total` of an upstream, a model or a target',
  'litellm_params.stream_timeout': '`timeouts.first_token`',
  'litellm_params.weight': '`targets[].weight`',
  'litellm_params.order': '`targets[].priority`',
  'litellm_params.temperature': '`body.default` of an upstream, a model or a target',
  'litellm_params.max_tokens': '`body.default` of an upstream, a model or a target',
  'litellm_params.extra_body': '`body.set`',
  'litellm_params.drop_params': '`body.remove`',
  'litellm_params.additional_drop_params': '`body.remove`',
  'litellm_params.input_cost_per_token': '`price.input`, for a million tokens',
  'litellm_params.output_cost_per_token': '`price.output`, for a million tokens',
  'model_info.input_cost_per_token': '`price.input`, for a million tokens',
  'model_info.output_cost_per_token': '`price.output`, for a million tokens',
  litellm_settings: 'other sections',
  'litellm_settings.drop_params': '`body.remove` of an upstream, a model or a target',
  'litellm_settings.num_retries': '`retry.attempts`',
  'litellm_settings.request_timeout': '`timeouts.total`, and `retry.deadline` for the search of a target',
  'litellm_settings.fallbacks': FALLBACK,
  'litellm_settings.default_fallbacks': FALLBACK,
  'litellm_settings.context_window_fallbacks': '`fallback_on: [context_length_exceeded]` of a model',
  'litellm_settings.content_policy_fallbacks': '`fallback_on: [content_filter]` of a model',
  'litellm_settings.callbacks': METRICS,
  'litellm_settings.success_callback': METRICS,
  'litellm_settings.failure_callback': METRICS,
  'litellm_settings.cache': NONE,
  'litellm_settings.cache_params': NONE,
  'litellm_settings.max_budget': '`budget` of a tier, a team or a key',
  router_settings: '`models.NAME`, `retry` and `redis`',
  'router_settings.routing_strategy': '`models.NAME.balance`',
  'router_settings.model_group_alias': 'further entries of `models`',
  'router_settings.num_retries': '`retry.attempts`',
  'router_settings.timeout': '`timeouts.total`, and `retry.deadline` for the search of a target',
  'router_settings.fallbacks': FALLBACK,
  'router_settings.context_window_fallbacks': '`fallback_on: [context_length_exceeded]` of a model',
  'router_settings.allowed_fails': 'breakers, which need no setting',
  'router_settings.cooldown_time': 'breakers, which need no setting',
  'router_settings.redis_host': '`redis`, one URL',
  'router_settings.redis_port': '`redis`, one URL',
  'router_settings.redis_password': '`redis`, one URL',
  'router_settings.redis_url': '`redis`',
  general_settings: 'other sections',
  'general_settings.master_key': 'no key for everything: `tollgate keys issue` on the machine of the gateway',
  'general_settings.database_url': '`store`',
  'general_settings.max_parallel_requests': '`concurrency` of a tier',
  'general_settings.alerting': '`budgets.webhook`, and alerts of Prometheus',
  'general_settings.enforce_user_param': NONE,
  environment_variables: 'the environment of the process',
};

const SECTIONS = ['litellm_settings', 'router_settings', 'general_settings'];

/** @returns the fault of a whole file that is LiteLLM's; undefined for any other, also one with parts of both */
export function litellmFault(tree: YamlMapping): YamlPosition | undefined {
  const file = ConfigField.root(tree, { faults: [], warnings: [] });
  const isThere = ({ node }: ConfigField): boolean => node !== undefined;
  const sections = SECTIONS.map((name) => file.at(name));
  const list = file.at('model_list');
  const own = [list, ...sections].find(isThere);
  if (own === undefined || ['upstreams', 'models'].some((name) => isThere(file.at(name)))) return undefined;
  const inItems = list.items.flatMap((item) => [item, item.at('litellm_params'), item.at('model_info')]);
  const parts = new Set([file, ...sections, ...inItems].flatMap(partsOf));
  const rows = Object.entries(LITELLM_PARTS).filter(([name]) => parts.has(name));
  if (hasVariable(file)) rows.push(['os.environ/NAME', `\`\${NAME}\``]);
  const width = Math.max(...rows.map(([name]) => name.length));
  const message = [
    'this is the configuration of LiteLLM, which has another format. Write a new file (`tollgate init`); what this one has is called here:',
    ...rows.map(([name, here]) => `  ${name.padEnd(width)}  ${here}`),
  ].join('\n');
  return { at: own.key.start, message };
}

/** The fields of a mapping, as `LITELLM_PARTS` names them. */
function partsOf({ path, entries }: ConfigField): readonly string[] {
  const section = path.findLast((step) => typeof step === 'string');
  return entries.map(({ name }) => (section === undefined ? name : `${section}.${name}`));
}

function hasVariable({ text, entries, items }: ConfigField): boolean {
  return [...entries, ...items].some(hasVariable) || (text ?? '').startsWith('os.environ/');
}
