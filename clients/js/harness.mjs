// Runs functions as tests: one line for each, and how many passed.

/** Runs `tests`, an object of names and functions, in order; the exit code tells whether one failed. */
export async function run(title, tests) {
  let passed = 0;
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      passed += 1;
      console.log(`ok     ${title}: ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${title}: ${name}: ${error.message}`);
      console.error(error);
    }
  }
  console.log(`${title}: ${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 ? 1 : 0;
}

/** What `ask` is rejected with. */
export async function rejection(ask) {
  try {
    await ask();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}
