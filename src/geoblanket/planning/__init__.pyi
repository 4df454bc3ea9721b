from geoblanket.planning.on_the_road import Judges as Judges
from geoblanket.planning.schedules import Budgets as Budgets
from geoblanket.planning.schedules import Schedule as Schedule
from geoblanket.planning.search import Plan as Plan
from geoblanket.planning.search import Rated as Rated
from geoblanket.planning.search import make_plan as make_plan
