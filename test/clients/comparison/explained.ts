// The differences that the gateway makes on purpose. Each has a name, a reason, and the narrowest place that holds it.
import type { Difference } from './compare.ts';

/** A difference that is right, and why. */
export interface Explanation {
  readonly name: string;
  readonly why: string;
  matches(difference: Difference, where: Where): boolean;
}

/** The pair that shows a difference: names with versions. */
export interface Where {
  readonly client: string;
  readonly server: string;
}

/** What a model object holds that is the gateway's own, and what vendors add to it. */
const isOwnModelField = ({ path, through }: Difference): boolean =>
  /\.(?:id|created|owned_by|ownedBy|length)$/.test(path) || through === undefined;

const isMessage = ({ path }: Difference): boolean => /(?:^|\.)(?:message|responseBody)$/.test(path);

export const EXPLANATIONS: readonly Explanation[] = [
  {
    name: 'models of the routing table',
    why: 'the gateway lists the models that it routes, from its configuration, and asks no server',
    matches: (difference) =>
      difference.call.startsWith('models.') &&
      (difference.path === 'requests' || isOwnModelField(difference)),
  },
  {
    name: 'unknown model',
    why: 'the gateway knows its models, so it answers without asking a server, in its own words; status, type, code and class are the same',
    matches: (difference) =>
      difference.call.startsWith('error.unknown_model') &&
      (difference.path === 'requests' || isMessage(difference)),
  },
  {
    name: 'embeddings in the encoding that was asked for',
    why: 'aimock answers with numbers where base64 was asked for, and this SDK decodes them as if they were text; the gateway makes base64 of them',
    matches: ({ call, path }, { client, server }) =>
      call === 'embeddings.base64' &&
      path.startsWith('result.data[0].embedding') &&
      client.startsWith('openai (Node) 4.') &&
      server.startsWith('aimock'),
  },
];

/** The explanation of a difference, if there is one. */
export function explanationOf(difference: Difference, where: Where): Explanation | undefined {
  return EXPLANATIONS.find((each) => each.matches(difference, where));
}
