"""The program measures its own coverage."""
# beside: needs coverage
import coverage

cov = coverage.Coverage(data_file=None)
cov.start()
import _tiny

model, _ = _tiny.train()
if model is None:
    print("never")
cov.stop()
executed = cov.get_data()
for name in sorted(executed.measured_files()):
    if "_tiny" in name or "coverage_user" in name:
        print(name, sorted(executed.lines(name)))
_tiny.digest(model)
