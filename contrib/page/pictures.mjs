// Takes the eight pictures beside it, of the page and the scripted model `demo`, which needs no key.
//
//     mkdir /tmp/tour && linger gateway start
//     node contrib/page/pictures.mjs "$(linger gateway url)" /tmp/tour contrib/page
//
// Needs Node.js and Chromium (`CHROMIUM` names it). `pngquant`, where it is installed, makes the pictures smaller.

import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Browser } from '../../tests/page/chromium.mjs';

const [url, directory, out] = process.argv.slice(2);

const NOTES = `## Release notes

The parser now accepts **nested** quotes, see [the issue](https://example.com/issues/42).

1. quotes of quotes
2. lists in quotes
   - and tables below them

| input | before | after |
|---|---:|---:|
| small | 1.2 ms | 0.4 ms |
| large | 38 ms | 11 ms |

\`\`\`rust
fn depth(line: &str) -> usize {
    line.chars().take_while(|c| *c == '>').count()
}
\`\`\`
`;

const browser = await Browser.start(process.env.CHROMIUM ?? 'chromium-headless-shell');

async function take(page, name) {
  const file = join(out, `${name}.png`);
  writeFileSync(file, await page.picture());
  spawnSync('pngquant', ['--force', '--strip', '--speed', '1', '64', '--output', file, file]);
}

const answer = (key) => `(() => {
  const button = [...document.querySelectorAll('.question:not(.deaf) .big')].find((it) => !it.disabled && it.getAttribute('aria-keyshortcuts') === '${key}');
  button?.click();
  return Boolean(button);
})()`;

async function create(page, name) {
  await page.click('#new');
  await page.until(`document.querySelector('#new-cwd')`);
  await page.eval(`document.querySelector('#new-cwd').value = ${JSON.stringify(directory)}, document.querySelector('#new-name').value = '${name}', document.querySelector('#new-model').textContent = 'demo/demo'`);
}

async function prompt(page, text) {
  await page.until(`!document.getElementById('compose').hidden`);
  await page.eval(`document.getElementById('prompt').focus()`);
  await page.type(text);
  await page.key('Enter');
}

mkdirSync(directory, { recursive: true });
writeFileSync(join(directory, 'notes.md'), NOTES);
writeFileSync(join(directory, 'greeting.txt'), 'Hello\nand welcome\n');
try {
  const page = await browser.page({ width: 1100, height: 760 });
  await page.goto(url);
  await page.until(`document.getElementById('app') && !document.getElementById('app').hidden`);

  await create(page, 'release-notes');
  await take(page, '1-new-session');
  await page.click('dialog .big.yes');
  await page.until(`document.getElementById('title').innerText === 'release-notes'`);
  await prompt(page, 'run: cat notes.md\nslow: 40');
  await page.until(answer('y'));
  await page.shows('word 20');
  await take(page, '2-streaming');
  await page.shows('word 40');
  await page.until(`document.querySelector('article.end')`);
  await page.eval(`document.querySelector('article.call summary').click()`);
  await page.until(`document.querySelector('article.call .output')`);
  await page.eval(`document.querySelector('article.call').scrollIntoView({ block: 'start' })`);
  await take(page, '3-tool-call');

  await create(page, 'greeting');
  await page.click('dialog .big.yes');
  await page.until(`document.getElementById('title').innerText === 'greeting'`);
  await prompt(page, 'say: I make it friendlier.\nwrite: welcome.txt Hello, friend, and welcome to linger');
  await page.until(`document.querySelector('.question:not(.deaf) .diff')`, 'the difference');
  await take(page, '4-question');
  const one = await page.eval(`document.querySelector('.question').dataset.question`);

  await create(page, 'cleaning-up');
  await page.click('dialog .big.yes');
  await page.until(`document.getElementById('title').innerText === 'cleaning-up'`);
  await prompt(page, 'run: git branch --merged | grep -v main | xargs git branch -d');
  await page.until(`document.querySelector('#dock .question:not(.deaf)')`);
  await page.eval(`location.hash = 'inbox'`);
  await page.until(`document.querySelectorAll('#stream .question').length === 2`);
  await take(page, '5-inbox');
  await page.key('/');
  await page.until(`document.querySelector('dialog input')`);
  await page.type('nested');
  await page.until(`document.querySelector('dialog .choice')?.innerText.includes('nested')`);
  await take(page, '6-search');
  await page.key('Escape');
  await page.until(`!document.querySelector('dialog')`);

  await page.send('Emulation.setDeviceMetricsOverride', { width: 390, height: 780, deviceScaleFactor: 1, mobile: true });
  await page.eval(`location.hash = 'question=${one}'`);
  await page.until(`document.querySelectorAll('#stream .question').length === 1`);
  await take(page, '7-phone');
  await page.send('Emulation.setDeviceMetricsOverride', { width: 1100, height: 760, deviceScaleFactor: 1, mobile: false });
  await page.colours('dark');
  const session = await page.eval(`[...document.querySelectorAll('.session')].find((it) => it.textContent.includes('release-notes')).dataset.session`);
  await page.eval(`location.hash = 'session=${session}'`);
  await page.until(`document.querySelector('article.end')`);
  await take(page, '8-dark');
} finally {
  await browser.end();
}
