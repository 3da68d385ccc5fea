// The targets of Azure OpenAI's clients, as the targets of this API.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { azureTarget } from '../../src/http/azure-target.ts';

const VERSION = 'api-version=2024-10-21';

describe("an Azure client's target", () => {
  test.each<[target: string, own: string, deployment?: string]>([
    [`/openai/deployments/gpt-4o/chat/completions?${VERSION}`, '/v1/chat/completions', 'gpt-4o'],
    ['/openai/deployments/gpt-4o/chat/completions', '/v1/chat/completions', 'gpt-4o'],
    [`/openai/v1/deployments/gpt-4o/embeddings?${VERSION}`, '/v1/embeddings', 'gpt-4o'],
    ['/openai/v1/chat/completions', '/v1/chat/completions'],
    [`/openai/responses/resp_1?${VERSION}&stream=true`, '/v1/responses/resp_1?stream=true'],
    [
      `/openai/responses/resp_1?stream=true&${VERSION}&starting_after=3`,
      '/v1/responses/resp_1?stream=true&starting_after=3',
    ],
    ['/openai/v1/files?limit=2&after=file-1', '/v1/files?limit=2&after=file-1'],
    ['/openai/deployments/org%2Fmodel/chat/completions', '/v1/chat/completions', 'org/model'],
    ['/openai/deployments/a%252Fb/chat/completions', '/v1/chat/completions', 'a%2Fb'],
    ['/openai/deployments/%C3%BCber:7b/chat/completions', '/v1/chat/completions', 'über:7b'],
    ['/openai/deployments/a+b/chat/completions', '/v1/chat/completions', 'a+b'],
    ['/openai/deployments/../chat/completions', '/v1/chat/completions', '..'],
    ['/openai/deployments/deployments/chat/completions', '/v1/chat/completions', 'deployments'],
    // Nothing of the key or of Azure's version is left, in any spelling.
    ['/openai/v1/files?API-KEY=k&api%2Dkey=k&api_key=k&Api-Version=v&x=1', '/v1/files?x=1'],
    // The model of a session is in the query.
    [`/openai/realtime?${VERSION}&deployment=gpt%2Drt`, '/v1/realtime?model=gpt%2Drt'],
    ['/openai/v1/realtime?model=rt', '/v1/realtime?model=rt'],
    [`/openai/deployments/a%2Fb/realtime?${VERSION}`, '/v1/realtime?model=a%2Fb', 'a/b'],
    ['/openai/v1/files?deployment=x', '/v1/files?deployment=x'],
  ])('%s is %s', (target, own, deployment) => {
    expect(azureTarget(target)).toEqual({ target: own, deployment });
  });

  test.each([
    '/v1/chat/completions',
    '/openai',
    '/openai/',
    '/openai?x',
    '/openaiv1/chat/completions',
    '/a/openai/v1/chat/completions',
    '/OpenAI/v1/chat/completions',
    '/openai/deployments/%ff/chat/completions',
    '/openai/deployments/%/chat/completions',
    '/openai/messages',
    '/openai/v1/messages?beta=true',
    '/openai/v1/messages/count_tokens',
    '/openai/deployments/a/messages',
  ])('%s is none', (target) => {
    expect(azureTarget(target)).toBeUndefined();
  });

  test('gives any name back as it is, and any other parameter in its place', () => {
    const name = fc.string({ unit: 'binary', minLength: 1 });
    const pieces = fc.array(fc.webQueryParameters(), { maxLength: 4 });
    fc.assert(
      fc.property(name, pieces, (model, given) => {
        const others = given
          .flatMap((each) => each.split('&'))
          .filter((each) => each !== '' && !/^api/i.test(each));
        const query = [VERSION, ...others, 'api-key=k'].join('&');
        const read = azureTarget(`/openai/deployments/${encodeURIComponent(model)}/completions?${query}`);
        expect(read).toEqual({
          target: ['/v1/completions', ...(others.length === 0 ? [] : [others.join('&')])].join('?'),
          deployment: model,
        });
      }),
    );
  });
});
