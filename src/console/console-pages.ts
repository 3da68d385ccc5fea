// The pages of the console, in the order of the navigation.
import { html } from '../billing/pages/page-frame.ts';
import type { ConsolePage } from './console-page.ts';

export const CONSOLE_PAGES: readonly ConsolePage[] = [
  {
    path: '/console',
    name: 'Overview',
    isListed: true,
    role: 'viewer',
    render: ({
      operator,
    }) => html`<section class="card" aria-labelledby="overview"><h1 id="overview">Overview</h1>
<p>You are signed in as ${operator.name}, with the role ${operator.role}.</p></section>`,
  },
];
