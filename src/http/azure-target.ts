// The targets of Azure OpenAI's clients, as the targets of this API. It knows no routes and no models.
import { plainName } from '../wire/json/json-bytes.ts';

/** `/openai/PATH`, `/openai/v1/PATH`, and both with the deployment before the path. */
const AZURE = /^\/openai\/(?:v1\/)?(?:deployments\/([^/?]+)\/)?([^?]+)(?:\?(.*))?$/;
/** Anthropic's API, whose clients have other errors: Azure has it elsewhere. */
const MESSAGES = /^\/openai\/(?:v1\/)?(?:deployments\/[^/?]+\/)?messages(?:[/?]|$)/;
/** Parameters for Azure's edge: no upstream gets them. Some clients send the key in one. */
const OWN_PARAMETERS: ReadonlySet<string> = new Set(['apiversion', 'apikey']);
/** The one path whose model is in the query. */
const REALTIME = 'realtime';

export interface AzureTarget {
  readonly target: string;
  /** The decoded deployment in the path: the model of the request. Undefined where the path has none. */
  readonly deployment: string | undefined;
}

/** @returns undefined for a target of another form, of messages, or with a deployment that is not percent-encoded UTF-8 */
export function azureTarget(target: string): AzureTarget | undefined {
  const [matched, encoded, path = '', search = ''] = AZURE.exec(target) ?? [];
  const deployment = encoded === undefined ? undefined : decoded(encoded);
  if (matched === undefined || MESSAGES.test(target) || (encoded !== undefined && deployment === undefined))
    return undefined;
  const isRealtime = path === REALTIME;
  const pieces = search.split('&').flatMap((piece) => {
    const [name = ''] = piece.split('=', 1);
    if (piece === '' || OWN_PARAMETERS.has(plainName(decoded(name) ?? name))) return [];
    return [isRealtime && name === 'deployment' ? `model${piece.slice(name.length)}` : piece];
  });
  if (isRealtime && encoded !== undefined) pieces.push(`model=${encoded}`);
  return {
    target: [`/v1/${path}`, ...(pieces.length === 0 ? [] : [pieces.join('&')])].join('?'),
    deployment,
  };
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
