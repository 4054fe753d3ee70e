// Visits a person's own server, a hostile page, and the own server again: node hostile.js OWN HOSTILE
const { withPage } = require('./page');

const [own, hostile] = process.argv.slice(2);

withPage(async (page) => {
  await page.goto(own);
  await page.goto(hostile);
  await page.waitForFunction(() => document.body.textContent.startsWith('{'), null, { timeout: 30000 });
  const seen = JSON.parse(await page.locator('body').textContent());
  await page.goto(own);
  console.log(JSON.stringify({ hostile: seen }));
});
