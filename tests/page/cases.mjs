// What a person does with the page in Chromium: `node cases.mjs CASE URL [MORE]`.
//
// Each case waits for what the page shows and for its test (`tests/it/page.rs`), never for a time. `step` tells the test
// that something is shown, and waits until it has done its part: a gate opened, an answer given, a daemon killed.

import { createInterface } from 'node:readline';
import { Browser } from './chromium.mjs';

const [name, url, ...more] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function step(word) {
  console.log(word);
  const { value } = await lines.next();
  return value;
}

function same(found, wanted, what) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${what}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
}

const text = (selector) => `[...document.querySelectorAll(${JSON.stringify(selector)})].map((it) => it.innerText.trim())`;

// The words of a model, as a reader sees them.
const said = text('article.text .said');

// Opens the page with the code, at a session or elsewhere.
async function open(browser, place, options) {
  const page = await browser.page(options);
  await page.goto(`${url}${place ? `&${place}` : ''}`);
  await page.until(`document.getElementById('app') && !document.getElementById('app').hidden`, 'the page is logged in');
  return page;
}

// What holds of every case: no error, nothing that was refused, nothing from elsewhere.
async function clean(page) {
  same(page.problems, [], 'problems of the page');
  const origin = new URL(url).origin;
  same(page.requests.filter((it) => !it.startsWith(`${origin}/`) && !it.startsWith('blob:')), [], 'requests to elsewhere');
}

const ready = (label) => `[...document.querySelectorAll('.question:not(.deaf) .big')].find((it) => !it.disabled && it.textContent.startsWith(${JSON.stringify(label)}))`;

const cases = {
  // A turn in a session that is made here: its words as they come, and its call as a card.
  async stream(browser) {
    const [workspace] = more;
    const page = await open(browser);
    await page.click('#new');
    await page.until(`document.querySelector('dialog input')`);
    await page.eval(`document.querySelector('#new-cwd').value = ${JSON.stringify(workspace)}, document.querySelector('#new-name').value = 'from-the-page'`);
    await page.click('dialog .big.yes');
    await page.until(`!document.getElementById('compose').hidden && !document.getElementById('prompt').hidden && document.getElementById('title').innerText === 'from-the-page'`);
    await page.eval(`document.getElementById('prompt').focus()`);
    await page.type('please look');
    await page.key('Enter');
    await page.until(`${said}.join('').includes('half of it')`, 'the first half');
    same(await page.eval(`document.querySelector('article.text .said.streams') !== null`), true, 'it is known to go on');
    same(await page.eval(text('article.prompt .said')), ['please look'], 'the prompt');
    await step('half');
    await page.until(`${said}.length === 2 && document.querySelector('article.end')`, 'the end of the turn');
    const md = `document.querySelector('article.text .md')`;
    same(await page.eval(`[...${md}.querySelectorAll('h4, strong, li, table td, pre code')].map((it) => it.innerText.trim())`),
      ['A heading', 'half', 'one', 'two', '1', '2', 'let x = 1;'], 'Markdown');
    same(await page.eval(`[...${md}.querySelectorAll('a')].map((it) => [it.href, it.rel, it.nextSibling?.textContent.trim() ?? ''])`),
      [['https://example.com/docs', 'noopener noreferrer', '(https://example.com/docs)']], 'links');
    await page.click('article.call summary');
    await page.until(`document.querySelector('article.call .output')?.innerText.includes('from the tool')`, 'the output in the opened card');
    await page.until(`document.getElementById('state').innerText === 'done'`);
    same(await page.eval(`[...document.getElementById('mode').options].map((it) => it.value)`), ['ask', 'edit', 'auto', 'plan'], 'the modes of the daemon');
    // One tool less from the next step on, and back.
    for (const [box, tools] of [['fetch', false], ['fetch', true]]) {
      await page.click('#tools');
      await page.until(`document.querySelector('dialog input[name=${box}]')?.checked === ${!tools}`);
      await page.eval(`document.querySelector('dialog input[name=${box}]').click()`);
      await page.click('dialog .big.yes');
      await page.until(`!document.querySelector('dialog') && ${text('article')}.join('').includes('tools: ${tools ? 'all' : 'bash'}')`, 'the change in the log');
    }
    await clean(page);
  },

  // Answered here by a key, elsewhere by another client; one question alone, and a form.
  async question(browser) {
    const [session] = more;
    const page = await open(browser, `session=${session}`);
    await page.until(ready('Allow once'));
    same(await page.eval(text('.question .main')), ['echo first'], 'the action');
    same(await page.eval(`[...document.querySelectorAll('.question .big')].map((it) => it.getAttribute('aria-keyshortcuts')).join('')`), 'ysnr', 'no answer that a token may not give');
    same(await page.eval(`/^digest sha256:[0-9a-f]{64}$/.test(document.querySelector('.question .digest').innerText)`), true, 'the digest');
    await page.key('y');
    await step('answered');
    await page.until(`${text('.question .main')}.includes('echo second')`);
    await step('asked');
    await page.until(`${text('article.call .said-short')}.some((it) => it.includes('denied by another: no'))`, 'who has answered elsewhere');
    const id = await page.until(`document.querySelector('.question:has(.field)')?.dataset.question`);
    await page.eval(`location.hash = 'question=${id}'`);
    await page.until(`document.querySelector('#stream .question .field textarea, #stream .question .field input')`, 'the form alone');
    same(await page.eval(`document.querySelectorAll('.question').length`), 1, 'one question');
    await page.eval(`document.querySelector('#stream .field textarea, #stream .field input').focus()`);
    await page.type('blue');
    await page.click('#stream .question .big.yes');
    await page.shows('It is answered.');
    await step('form');
    await clean(page);
  },

  // Keys work where the cursor is, while the prompt is empty; only the question that they answer shows them.
  async keys(browser) {
    const [session] = more;
    const page = await open(browser, `session=${session}`);
    await page.until(`document.querySelectorAll('.question:not(.deaf)').length === 2`, 'two questions');
    await page.eval(`document.getElementById('prompt').focus()`);
    const capped = `[...document.querySelectorAll('.question')].map((it) => getComputedStyle(it.querySelector('kbd')).visibility)`;
    await page.until(`JSON.stringify(${capped}) === '["visible","hidden"]'`, 'keys on the first question alone');
    for (const key of 'yes') await page.key(key);
    await page.until(`document.getElementById('prompt').value === 'yes'`, 'a word is a word');
    await page.until(`JSON.stringify(${capped}) === '["hidden","hidden"]'`, 'no keys while a prompt is written');
    await page.eval(`new Promise((done) => setTimeout(done, 500))`);
    same(await page.eval(`document.querySelectorAll('.question').length`), 2, 'a word answers nothing');
    await page.eval(`document.getElementById('prompt').value = ''; document.getElementById('prompt').dispatchEvent(new Event('input', { bubbles: true }))`);
    await page.key('n');
    await page.until(`document.querySelectorAll('.question').length === 1`, 'a key alone answers');
    same(await page.eval(`document.getElementById('prompt').value`), '', 'and leaves no letter');
    await step('denied');
    await page.until(`document.querySelector('.question:not(.deaf)')`);
    await page.eval(`document.getElementById('prompt').focus()`);
    await page.key('y');
    await page.until(`!document.querySelector('.question')`, 'the second too');
    await clean(page);
  },

  // A form of an MCP server, with a field of each kind.
  async form(browser) {
    const [session] = more;
    const page = await open(browser, `session=${session}`);
    const at = (label) => `[...document.querySelectorAll('.field')].find((it) => it.querySelector('label').innerText.startsWith(${JSON.stringify(label)})).querySelector('input, select, textarea')`;
    await page.until(`document.querySelector('.question:not(.deaf) .field')`);
    const shape = (label) => page.eval(`(({ tagName, type, value, multiple }) => [tagName, type, multiple ?? false, value])(${at(label)})`);
    same(await shape('Boolean'), ['INPUT', 'checkbox', false, 'on'], 'a switch');
    same(await shape('String with default'), ['TEXTAREA', 'textarea', false, 'It was a dark and stormy night.'], 'a default');
    same(await shape('Integer'), ['INPUT', 'number', false, '42'], 'an integer');
    same(await page.eval(`[...${at('Titled Single Select Enum')}.options].map((it) => it.innerText)`), ['–', 'Superman', 'Green Lantern', 'Wonder Woman'], 'titles');
    same(await page.eval(`[...${at('Titled Multiple Select Enum')}.selectedOptions].map((it) => it.innerText)`), ['Tuna'], 'chosen');
    await page.eval(`${at('String')}.focus()`);
    await page.type('Ada');
    await page.eval(`${at('Boolean')}.click(), ${at('Number in range')}.value = '2.5', ${at('Integer')}.value = '1000'`);
    await page.eval(`${at('Titled Single Select Enum')}.selectedIndex = 3, ${at('Titled Multiple Select Enum')}.options[2].selected = true`);
    await page.click('.question .big.yes');
    await page.until(`document.querySelector('.question .fault')?.innerText.includes('integer')`, 'what does not fit is said');
    await page.eval(`${at('Integer')}.value = '7'`);
    await page.click('.question .big.yes');
    await page.until(`!document.querySelector('.question .field') && document.querySelector('article.end')`, 'it is answered');
    await clean(page);
  },

  // A session with a child at work: the tree, by keys.
  async tree(browser) {
    const [parent] = more;
    const page = await open(browser, `session=${parent}`);
    const rows = `[...document.querySelectorAll('[role=treeitem]')].map((it) => [it.getAttribute('aria-level'), it.getAttribute('aria-expanded')])`;
    await page.until(`JSON.stringify(${rows}) === '[["1","true"],["2",null]]'`, 'a child below its parent');
    const focused = `document.activeElement.getAttribute('aria-level')`;
    await page.eval(`document.querySelector('[aria-level="1"]').focus()`);
    await page.key('ArrowLeft');
    await page.until(`JSON.stringify(${rows}) === '[["1","false"]]'`, 'it is folded');
    await page.key('ArrowRight');
    await page.until(`JSON.stringify(${rows}) === '[["1","true"],["2",null]]'`, 'it is unfolded');
    await page.key('ArrowDown');
    same(await page.eval(focused), '2', 'the child has the focus');
    await page.key('Enter');
    await page.until(`${said}.join('').includes('the child writes')`, 'the words of the child');
    await step('child');
    await page.until(`document.querySelector('article.end')`, 'the child is done');
    await page.key('ArrowLeft');
    await page.key('Enter');
    await page.until(`${said}.join('').includes('the child is done')`, 'the words of the parent');
    await clean(page);
  },

  // Loaded again in the middle of a word.
  async reload(browser) {
    const [session] = more;
    const page = await open(browser, `session=${session}`);
    await page.until(`${said}.join('') === 'Good mor'`);
    await page.reload();
    await page.until(`${said}.join('') === 'Good mor'`);
    await step('again');
    await page.until(`document.querySelector('article.end')`);
    same(await page.eval(said), ['Good morning to you.'], 'the words');
    await clean(page);
  },

  // The daemon is killed in the middle of an answer, and the gateway ends and comes again.
  async killed(browser) {
    const [session] = more;
    const page = await open(browser, `session=${session}`);
    await page.until(`${said}.join('') === 'Before the'`);
    await step('half');
    await page.until(`${said}.length === 2 && ${said}.at(-1) === 'After the'`, 'the step is repeated');
    same(await page.eval(`document.querySelectorAll('article.superseded').length`), 1, 'what does not count');
    await step('gateway');
    await page.until(`document.querySelector('article.end')`);
    same(await page.eval(said), ['Before the', 'After the kill.'], 'the words');
    await page.until(`document.getElementById('line').hidden`, 'it is connected');
    await clean(page);
  },

  // What a model, a tool, a file and a name may say.
  async hostile(browser) {
    const [session] = more;
    const page = await open(browser, `session=${session}`);
    await page.until(`document.querySelector('article.end') && document.querySelector('.feed').ariaBusy === 'false'`, 'all is there');
    await page.eval(`document.querySelectorAll('article summary').forEach((it) => it.click())`);
    await page.until(`document.querySelector('article.call .output')`);
    const found = await page.eval(`(() => {
      const all = [...document.body.querySelectorAll('*')];
      const allowed = new Set('A ARTICLE ASIDE BLOCKQUOTE BUTTON CODE DD DETAILS DIV DL DT EM FOOTER FORM H1 H2 H3 H4 H5 H6 HEADER HR INPUT KBD LABEL LI MAIN NOSCRIPT OL OPTION P PRE S SECTION SELECT SMALL SPAN STRONG SUMMARY TABLE TBODY TD TEXTAREA TH THEAD TIME TR UL'.split(' '));
      const text = document.body.innerText;
      return {
        ran: window.pwned ?? null,
        tags: all.map((it) => it.tagName).filter((it) => !allowed.has(it)),
        // The page itself gives blocks that are far their height.
        handlers: all.filter((it) => it.className !== 'block').flatMap((it) => [...it.attributes]).map((it) => it.name).filter((it) => /^on|^style$|^srcdoc$/.test(it)),
        links: [...document.links].map((it) => it.protocol).filter((it) => !['http:', 'https:', 'mailto:'].includes(it)),
        foreign: [...document.links].filter((it) => it.origin !== location.origin && it.rel !== 'noopener noreferrer').length,
        hidden: /[\\u202a-\\u202e\\u2066-\\u2069\\u200e\\u200f\\x00-\\x08\\x0b\\x0e-\\x1f\\x7f-\\x9f]|[\\u{e0000}-\\u{e0fff}]/u.test(text),
        shown: ['<script>window.pwned = 1</script>', '<202e>', '<2066>', '␛[2J', 'javascript:window.pwned=3'].filter((it) => !text.includes(it)),
        forged: document.querySelectorAll('.said .question, .said .card, .said .who, .said .item, .said button').length,
        // Nothing leaves its box, however long its line is.
        wide: document.documentElement.scrollWidth > innerWidth || document.getElementById('stream').scrollWidth > document.getElementById('stream').clientWidth,
      };
    })()`);
    same(found, { ran: null, tags: [], handlers: [], links: [], foreign: 0, hidden: false, shown: [], forged: 0, wide: false }, 'the page');
    await clean(page);
  },

  // A long session: what is far has no elements, the first message can be reached, words of it are found.
  async many(browser) {
    const [session, count] = more;
    const page = await open(browser);
    await page.until(`document.querySelector('[role=treeitem]')`);
    const figure = await page.eval(`new Promise((done) => {
      const long = [];
      new PerformanceObserver((list) => list.getEntries().forEach((it) => long.push(Math.round(it.duration)))).observe({ entryTypes: ['longtask'] });
      const began = performance.now();
      location.hash = 'session=${session}';
      let first = 0;
      const look = () => {
        const all = document.querySelectorAll('.block').length * 10 >= ${count};
        if (!first && document.querySelector('article.end')) first = performance.now() - began;
        if (!all) return requestAnimationFrame(look);
        requestAnimationFrame(() => setTimeout(() => done({ first: Math.round(first), all: Math.round(performance.now() - began), long, drawn: document.querySelectorAll('article').length }), 0));
      };
      look();
    })`);
    if (figure.drawn > 200) throw new Error(`${figure.drawn} items are drawn at once`);
    same(await page.eval(`document.getElementById('latest').hidden`), true, 'it is at the end');
    // Home, as often as blocks above turn out higher than they were thought to be.
    await page.until(`(document.getElementById('stream').scrollTop = 0, document.querySelector('article.prompt .said')?.innerText === 'prompt 0')`, 'the first prompt');
    if (await page.eval(`document.querySelectorAll('article').length`) > 200) throw new Error('too many items are drawn');
    await page.key('/');
    await page.until(`document.querySelector('dialog input')`);
    await page.type('prompt 7 ');
    await page.until(`[...document.querySelectorAll('dialog .choice')].some((it) => it.innerText.includes('in this session'))`);
    await page.key('Enter');
    await page.until(`document.querySelector('article.found')?.innerText.includes('prompt 7')`, 'what was found is shown');
    await clean(page);
    console.log(`figure: ${JSON.stringify(figure)}`);
  },
};

const browser = await Browser.start(process.env.CHROMIUM ?? 'chromium-headless-shell');
try {
  await cases[name](browser);
  console.log('all is well');
} catch (error) {
  console.log(`failed: ${error.stack}`);
  process.exitCode = 1;
} finally {
  await browser.end();
  process.exit();
}
