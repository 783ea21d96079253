"""Takes calls and says nothing."""
from rpc import calls

for _ in calls():
    pass
