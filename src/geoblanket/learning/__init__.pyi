from geoblanket.learning.from_released import learn_from_released as learn_from_released
from geoblanket.learning.noise import TrainingBudget as TrainingBudget
from geoblanket.learning.noise import noisy as noisy
from geoblanket.learning.private import learn_privately as learn_privately
from geoblanket.learning.spending import TrainingAccount as TrainingAccount
from geoblanket.learning.spending import TrainingLedger as TrainingLedger
